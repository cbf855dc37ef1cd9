"""The keys of recordings, replayed or raced, beside those that every screen has."""

from textual.binding import Binding

from mlxspec_app.keymap import COMMON, TREE_VIEWS

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
        "home",
        "rewind",
        "Start",
        show=False,
        priority=True,
        id="replay.start",
        tooltip="to the beginning",
    ),
    Binding(
        "end",
        "wind",
        "End",
        show=False,
        priority=True,
        id="replay.end",
        tooltip="to the end",
    ),
)
_RACE_COMMON = ("app.help", "view.ink", "view.up", "view.down", "view.follow", "app.quit")

REPLAY = (
    Binding("space", "pause", "Pause", id="replay.pause", tooltip="pause or go on"),
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
        tooltip="the phase before",
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
        tooltip="the round before",
    ),
    Binding(
        "right_curly_bracket",
        "move('rejection', 1)",
        "Rejection",
        key_display="}",
        id="replay.rejection",
        tooltip="the next round whose draft the target contradicted",
    ),
    Binding(
        "left_curly_bracket",
        "move('rejection', -1)",
        "Rejection back",
        show=False,
        key_display="{",
        id="replay.rejection_back",
        tooltip="the rejection before",
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
)

RACE = (
    Binding("space", "pause", "Pause", id="race.pause", tooltip="pause or go on"),
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
        tooltip="the round before",
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
)
