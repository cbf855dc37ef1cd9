"""The keys of replays, races and watched servers, with those of all screens."""

from textual.binding import Binding

from mlxspec_app.settings.keys.chat import COMMON, LETTERS, TREE_VIEWS

_SPEED = (
    Binding(
        "plus,equals_sign",
        "speed('faster')",
        "Faster",
        show=False,
        key_display="+",
        id="replay.faster",
        tooltip="faster, up to 4 times",
    ),
    Binding(
        "minus",
        "speed('slower')",
        "Slower",
        show=False,
        key_display="-",
        id="replay.slower",
        tooltip="slower, down to 0.05 times",
    ),
)

_ENDS = (
    Binding(
        "home,less_than_sign",
        "rewind",
        "Start",
        show=False,
        priority=True,
        id="replay.start",
        tooltip="to the beginning",
    ),
    Binding(
        "end,greater_than_sign",
        "wind",
        "End",
        show=False,
        priority=True,
        id="replay.end",
        tooltip="to the end",
    ),
)
_RACE_COMMON = (
    "app.help",
    "view.ink",
    "view.up",
    "view.down",
    "view.follow",
    "app.suspend",
    "app.quit",
)

REPLAY = (
    Binding("space", "pause", "Pause", id="replay.pause", tooltip="pause or resume"),
    Binding(
        "right",
        "move('phase', 1)",
        "Phase",
        priority=True,
        key_display="→",
        id="replay.phase",
        tooltip="the next phase: draft, verdict, text; pauses",
    ),
    Binding(
        "left",
        "move('phase', -1)",
        "Phase back",
        show=False,
        priority=True,
        key_display="←",
        id="replay.phase_back",
        tooltip="the previous phase",
    ),
    Binding(
        "right_square_bracket",
        "move('round', 1)",
        "Round",
        key_display="]",
        id="replay.round",
        tooltip="the next round",
    ),
    Binding(
        "left_square_bracket",
        "move('round', -1)",
        "Round back",
        show=False,
        key_display="[",
        id="replay.round_back",
        tooltip="the previous round",
    ),
    Binding(
        "right_curly_bracket",
        "move('rejection', 1)",
        "Rejection",
        key_display="}",
        id="replay.rejection",
        tooltip="the next round whose draft the target rejected",
    ),
    Binding(
        "left_curly_bracket",
        "move('rejection', -1)",
        "Rejection back",
        show=False,
        key_display="{",
        id="replay.rejection_back",
        tooltip="the previous rejection",
    ),
    Binding(
        "g",
        "ask_round",
        "Go to",
        key_display="g",
        id="replay.go_to",
        tooltip="go to a round by its number",
    ),
    *_ENDS,
    *_SPEED,
    *TREE_VIEWS,
    Binding("q", "app.quit", "Quit", key_display="q", id="replay.quit", tooltip="quit"),
    *COMMON,
    *LETTERS,
)

RACE = (
    Binding("space", "pause", "Pause", id="race.pause", tooltip="pause or resume"),
    Binding(
        "right",
        "move(1)",
        "Round",
        priority=True,
        key_display="→",
        id="race.round",
        tooltip="the next round of either run; pauses",
    ),
    Binding(
        "left",
        "move(-1)",
        "Round back",
        show=False,
        priority=True,
        key_display="←",
        id="race.round_back",
        tooltip="the previous round",
    ),
    Binding(
        "e",
        "export",
        "Export",
        key_display="e",
        id="race.export",
        tooltip="export the race as a page, an animated picture and a screencast for the terminal",
    ),
    *_ENDS,
    *_SPEED,
    Binding("q", "app.quit", "Quit", key_display="q", id="race.quit", tooltip="quit"),
    Binding(
        "ctrl+c",
        "app.quit",
        "Quit",
        show=False,
        priority=True,
        id="race.interrupt",
        tooltip="quit",
    ),
    *(binding for binding in COMMON if binding.id in _RACE_COMMON),
    *(b for b in LETTERS if b.id in {"app.explain", *(f"{name}_letter" for name in _RACE_COMMON)}),
)

WATCH = (
    Binding(
        "right_square_bracket",
        "move(1)",
        "Next reply",
        key_display="]",
        id="watch.next",
        tooltip="show the next reply of the server",
    ),
    Binding(
        "left_square_bracket",
        "move(-1)",
        "Reply before",
        key_display="[",
        id="watch.before",
        tooltip="show the reply before",
    ),
    *TREE_VIEWS,
    Binding("q", "app.quit", "Quit", key_display="q", id="watch.quit", tooltip="quit"),
    *COMMON,
    *LETTERS,
)
