"""The keys of every screen; bindings, footer, help and manual use these tables.

A user's key map names an action by its id, not by its default key. Some terminals use paging keys
themselves, and some keyboards have function keys on a second layer only. So each of these actions
also has a letter, outside text fields, and a command in the prompt.
"""

from dataclasses import replace

from textual.binding import Binding
from textual.keys import format_key


def _shown(
    id: str, keys: str, action: str, label: str, meaning: str, sign: str = "", *, show: bool = True
) -> Binding:
    """Return a binding; help and footer show `sign`, else its first key if that is a character."""
    first = format_key(keys.split(",")[0])
    is_character = len(first) == 1 and first.isascii()
    display = sign or (first if is_character else None)
    return Binding(keys, action, label, show, display, tooltip=meaning, id=id)


def _hidden(id: str, keys: str, action: str, meaning: str, sign: str = "") -> Binding:
    """Return a binding that the help lists, and the footer does not."""
    return _shown(id, keys, action, "", meaning, sign, show=False)


def _first(*keys: Binding) -> tuple[Binding, ...]:
    """Return keys that the focused widget cannot take for itself."""
    return tuple(replace(key, priority=True) for key in keys)


def _in(place: str, *keys: Binding) -> tuple[Binding, ...]:
    """Return keys whose meaning names the place where they work."""
    return tuple(replace(key, tooltip=f"in the {place}: {key.tooltip}") for key in keys)


# ---- all screens ----------------------------------------------------------------------------

COMMON = (
    _shown("app.help", "f1", "help", "Help", "what the colours, keys and commands mean"),
    *_first(_shown("app.palette", "ctrl+p", "app.command_palette", "Commands",
                   "search and run all commands")),
    _shown("view.ink", "f2", "view", "X-ray",
           "the X-ray on and off: who wrote each token"),
    _shown("view.tree", "f3", "toggle_tree", "Tree", "the last draft as a tree"),
    _shown("view.stats", "f4", "toggle_stats", "Stats", "figures beside the chat"),
    _hidden("app.settings", "f5", "settings", "settings"),
    *_first(
        _hidden("view.up", "pageup", "scroll('up')", "scroll up"),
        _hidden("view.down", "pagedown", "scroll('down')", "scroll down"),
        _hidden("view.follow", "ctrl+end", "scroll('end')", "scroll to the newest text"),
        _hidden("app.copy", "ctrl+c,super+c", "copy_or_quit",
                "copy the selected text; without a selection, quit"),
        _hidden("app.suspend", "ctrl+z", "app.suspend_process",
                "suspend to the shell; its command fg resumes"),
        _hidden("app.quit", "ctrl+q", "app.quit", "quit"),
    ),
)  # fmt: skip

_LETTERS = {
    "app.help": "H", "view.ink": "i", "view.tree": "t", "view.stats": "s", "app.settings": "S",
    "view.up": "p", "view.down": "o", "view.follow": "G",
}  # fmt: skip
LETTERS = (
    *(
        _hidden(f"{b.id}_letter", _LETTERS[b.id], f"screen.{b.action}", b.tooltip)
        for b in COMMON
        if b.id in _LETTERS
    ),
    _hidden("app.explain", "question_mark", "screen.explain",
            "what the figures on the screen mean; again: all of the help"),
    _hidden("view.next_ink", "I", "screen.ink", "in the X-ray: colour by another property"),
)  # fmt: skip
"""Letters, on the whole screen, for keys that a terminal or a keyboard may lack."""

TREE_VIEWS = (
    _hidden("view.mask", "M", "screen.toggle_tree('mask')",
            "which drafted node sees which, as a matrix; again: the tree"),
    _hidden("view.tape", "K", "screen.toggle_tree('tape')",
            "the rows of the cache: staged, kept, rolled back; again: the tree"),
)  # fmt: skip

# ---- the chat -------------------------------------------------------------------------------

CHAT = (
    _shown("chat.stop", "escape", "stop", "Stop", "stop the reply, or a download"),
    _hidden("chat.fetch", "f", "fetch",
            "download the model that fits this machine, while you chat; in the prompt: f, Enter"),
    *_first(
        _shown("chat.regenerate", "ctrl+r", "regenerate", "Retry",
               "retry the last reply; without a model, load it again"),
        _hidden("chat.new", "ctrl+n", "new_chat", "start a new chat"),
        _shown("chat.list", "ctrl+l", "chats", "Chats", "all chats: open, search, rename, delete"),
        _shown("chat.model", "ctrl+o", "model", "Models", "choose other models"),
        _hidden("chat.find", "ctrl+f", "find", "search this chat"),
        _hidden("chat.editor", "ctrl+g", "editor",
                "write the message in your own editor, the one in $VISUAL or $EDITOR"),
        _shown("chat.replay", "f6", "replay", "Replay",
               "step through the conversation round by round"),
    ),
    *(binding for binding in COMMON if binding.id != "app.copy"),
    *_first(
        _hidden("app.copy", "ctrl+c,super+c", "copy_or_quit",
                "copy the selected text; without a selection end the reply, else clear the prompt "
                "(Up restores its text), else quit at a second press; in a dialog: back"),
    ),
)  # fmt: skip

FIND = (
    _shown("find.older", "enter,up", "step(-1)", "Older", "while searching: the previous match"),
    _shown("find.newer", "shift+enter,down", "step(1)", "Newer",
           "while searching: the next match", "↓"),
    _shown("find.close", "escape", "close", "Close", "close the search"),
)  # fmt: skip

TRANSCRIPT = (
    *_in(
        "transcript",
        _shown("transcript.write", "tab", "screen.write", "Write", "back to the prompt"),
        _hidden("transcript.before", "left,h", "point('token', -1)",
                "the previous token, who wrote it and instead of what"),
        _shown("transcript.after", "right,l", "point('token', 1)", "Token", "the next token"),
        _shown("transcript.alternatives", "enter", "screen.alternatives", "Alternatives",
               "what else the model could have written in place of the token, and how probable "
               "that was (in the X-ray a click does it too); Up, Down and Enter branch the reply "
               "from there with one of them; on a message of yours: its files and long pastes"),
        _hidden("transcript.up", "up", "screen.pick(-1)",
                "a line up; where other tokens are shown: mark the previous one"),
        _hidden("transcript.down", "down", "screen.pick(1)",
                "a line down; where other tokens are shown: mark the next one"),
        _hidden("transcript.round_before", "left_square_bracket", "point('round', -1)",
                "the previous round"),
        _hidden("transcript.round_after", "right_square_bracket", "point('round', 1)",
                "the next round"),
        _hidden("transcript.message_before", "k", "point('message', -1)",
                "the previous message, yours too"),
        _shown("transcript.message_after", "j", "point('message', 1)", "Message",
               "the next message"),
        _shown("transcript.copy", "y", "screen.copy_message", "Copy",
               "copy the selected message, else the last reply"),
        _hidden("transcript.copy_code", "c", "screen.copy_code",
                "copy the selected code block, else the last one"),
        _shown("transcript.markdown", "m", "screen.toggle_markdown", "Markdown",
               "the reply as rendered Markdown, or its tokens again"),
        _hidden("transcript.reasoning", "z", "screen.toggle_reasoning",
                "show the reasoning of the reply, or fold it"),
        _shown("transcript.edit", "e", "screen.edit", "Edit", "edit this message"),
        _shown("transcript.fork", "b", "screen.fork", "Fork",
               "fork the chat: continue from here in a copy"),
        _hidden("transcript.version_before", "less_than_sign", "screen.version(-1)",
                "the previous version of an edited or retried message"),
        _hidden("transcript.version_after", "greater_than_sign", "screen.version(1)",
                "the next version"),
        _hidden("transcript.start", "g", "screen.scroll('start')", "the beginning of the chat"),
    ),
    *TREE_VIEWS,
    *LETTERS,
)  # fmt: skip

PROMPT_KEYS = (
    ("Enter", "send the message; while a reply is being written it waits its turn"),
    ("Ctrl+J", "new line (also Shift+Enter where the terminal can send it)"),
    ("Up", "on the first line: the previous message, or the text that was cleared"),
    ("Ctrl+D", "on an empty prompt: quit; queued and unsent text is restored at the next start"),
    ("Ctrl+_", "undo; Ctrl+Y: redo"),
    ("@file", "attach the text of a file; Tab completes its name"),
    ("Tab", "to the transcript, where letters are keys, as the footer shows, and tokens can be "
            "inspected; letters that are not keys go to the prompt; Tab again, back to it"),
)  # fmt: skip

# ---- lists: of chats, and of models ---------------------------------------------------------

LIST = _in(
    "list of chats",
    _hidden("chats.up", "up,k", "move(-1)", "the chat above"),
    _hidden("chats.down", "down,j", "move(1)", "the chat below"),
    _hidden("chats.page_up", "pageup,p", "page(-1)", "a page up"),
    _hidden("chats.page_down", "pagedown,o", "page(1)", "a page down"),
    _hidden("chats.first", "home,g", "end(-1)", "the newest chat"),
    _hidden("chats.last", "end,G", "end(1)", "the oldest one shown"),
    _shown("chats.open", "enter", "choose", "Open", "open it"),
)

HISTORY = _in(
    "list of chats",
    _shown("chats.search", "slash", "search", "Search", "search all of them"),
    _shown("chats.rename", "r", "rename", "Rename", "rename the chat"),
    _shown("chats.delete", "d,delete", "delete", "Delete", "delete the chat"),
    _shown("chats.undelete", "u", "undelete", "Undo",
           "restore the last deleted one, until the app quits"),
    _shown("chats.new", "n", "new", "New", "start a new one"),
    _shown("chats.back", "escape", "back", "Back", "back to the conversation"),
    _hidden("chats.fork", "f", "fork", "add a copy of the chat"),
)  # fmt: skip

SEARCH = (
    _hidden("chats.hit_up", "up", "move(-1)", "the previous match"),
    _hidden("chats.hit_down", "down", "move(1)", "the next match"),
    *_first(_hidden("chats.quit", "ctrl+c", "back", "back")),
)

MODELS = (
    _shown("models.back", "escape", "dismiss(None)", "Back", "back to the chat"),
    _shown("models.default", "d", "make_default", "Make default", "make this pair the default"),
    _shown("models.fetch", "f", "fetch", "Download",
           "download the model that is not here yet, while you chat"),
    _shown("models.measure", "m", "measure_again", "Measure again",
           "measure again which drafter is fastest here, and load it"),
    _shown("models.table", "t", "make_table", "Learn it",
           "let the loaded model write ten minutes of text while nobody asks, to guess better "
           "from; again: stop"),
    _shown("models.stop", "s", "stop", "Stop download", "stop the download"),
    Binding("ctrl+c", "dismiss(None)", "Back", show=False, priority=True),
)  # fmt: skip

# ---- recordings and watched servers ---------------------------------------------------------

_TO_ENDS = (
    *_first(
        _hidden("replay.start", "home,less_than_sign", "rewind", "to the beginning"),
        _hidden("replay.end", "end,greater_than_sign", "wind", "to the end"),
    ),
    _hidden("replay.faster", "plus,equals_sign", "speed('faster')", "faster, up to 4 times"),
    _hidden("replay.slower", "minus", "speed('slower')", "slower, down to 0.05 times"),
)  # fmt: skip

REPLAY = (
    _shown("replay.pause", "space", "pause", "Pause", "pause or resume"),
    *_first(
        _shown("replay.phase", "right", "move('phase', 1)", "Phase",
               "the next phase: draft, verdict, text; pauses", "→"),
        _hidden("replay.phase_back", "left", "move('phase', -1)", "the previous phase", "←"),
    ),
    _shown("replay.round", "right_square_bracket", "move('round', 1)", "Round", "the next round"),
    _hidden("replay.round_back", "left_square_bracket", "move('round', -1)", "the previous round"),
    _shown("replay.rejection", "right_curly_bracket", "move('rejection', 1)", "Rejection",
           "the next round whose draft the target rejected"),
    _hidden("replay.rejection_back", "left_curly_bracket", "move('rejection', -1)",
            "the previous rejection"),
    _shown("replay.go_to", "g", "ask_round", "Go to", "go to a round by its number"),
    *_TO_ENDS,
    *TREE_VIEWS,
    _shown("replay.quit", "q", "app.quit", "Quit", "quit"),
    *COMMON,
    *LETTERS,
)  # fmt: skip
REPLAY_BACK = _first(
    _shown("replay.back", "escape,f6,q", "dismiss(None)", "Back", "back to the conversation")
)

_RACE_COMMON = (
    "app.help", "view.ink", "view.up", "view.down", "view.follow", "app.suspend", "app.quit",
    "app.explain",
)  # fmt: skip
RACE = (
    _shown("race.pause", "space", "pause", "Pause", "pause or resume"),
    *_first(
        _shown("race.round", "right", "move(1)", "Round",
               "the next round of either run; pauses", "→"),
        _hidden("race.round_back", "left", "move(-1)", "the previous round", "←"),
    ),
    _shown("race.export", "e", "export", "Export",
           "export the race as a page, an animated picture and a screencast for the terminal"),
    *_TO_ENDS,
    _shown("race.quit", "q", "app.quit", "Quit", "quit"),
    *_first(_hidden("race.interrupt", "ctrl+c", "app.quit", "quit")),
    *(b for b in (*COMMON, *LETTERS) if str(b.id).removesuffix("_letter") in _RACE_COMMON),
)  # fmt: skip
RACE_BACK = _first(_shown("race.back", "escape,q", "back", "Back", "back to the conversation"))

WATCH = (
    _shown("watch.next", "right_square_bracket", "move(1)", "Next reply",
           "show the next reply of the server"),
    _shown("watch.before", "left_square_bracket", "move(-1)", "Reply before",
           "show the reply before"),
    *TREE_VIEWS,
    _shown("watch.quit", "q", "app.quit", "Quit", "quit"),
    *COMMON,
    *LETTERS,
)  # fmt: skip
