"""The keys of the chat and of all screens; bindings, footer and help use these tables.

A user's key map names an action by its id, not by its default key. Some terminals use paging keys
themselves, and some keyboards have function keys on a second layer only. So each of these actions
also has a letter, outside text fields, and a command in the prompt.
"""

from textual.binding import Binding

COMMON = (
    Binding(
        "f1", "help", "Help", id="app.help", tooltip="what the colours, keys and commands mean"
    ),
    Binding(
        "ctrl+p",
        "app.command_palette",
        "Commands",
        priority=True,
        id="app.palette",
        tooltip="search and run all commands",
    ),
    Binding(
        "f2",
        "view",
        "X-ray",
        id="view.ink",
        tooltip="the next view: colours, X-ray (who wrote each token), calm page",
    ),
    Binding("f3", "toggle_tree", "Tree", id="view.tree", tooltip="the last draft as a tree"),
    Binding("f4", "toggle_stats", "Stats", id="view.stats", tooltip="figures beside the chat"),
    Binding("f5", "settings", "Settings", show=False, id="app.settings", tooltip="settings"),
    Binding(
        "pageup",
        "scroll('up')",
        "Page up",
        show=False,
        priority=True,
        id="view.up",
        tooltip="scroll up",
    ),
    Binding(
        "pagedown",
        "scroll('down')",
        "Page down",
        show=False,
        priority=True,
        id="view.down",
        tooltip="scroll down",
    ),
    Binding(
        "ctrl+end",
        "scroll('end')",
        "Follow",
        show=False,
        priority=True,
        id="view.follow",
        tooltip="scroll to the newest text",
    ),
    Binding(
        "ctrl+c,super+c",
        "copy_or_quit",
        "Copy or quit",
        show=False,
        priority=True,
        id="app.copy",
        tooltip="copy the selected text; without a selection, quit",
    ),
    Binding(
        "ctrl+z",
        "app.suspend_process",
        "Suspend",
        show=False,
        priority=True,
        id="app.suspend",
        tooltip="suspend to the shell; its command fg resumes",
    ),
    Binding("ctrl+q", "app.quit", "Quit", show=False, priority=True, id="app.quit", tooltip="quit"),
)

_LETTERS = {
    "app.help": "H",
    "view.ink": "i",
    "view.tree": "t",
    "view.stats": "s",
    "app.settings": "S",
    "view.up": "p",
    "view.down": "o",
    "view.follow": "G",
}


def _by_letter(binding: Binding, key: str) -> Binding:
    """Return a binding of the same action to a letter, on the whole screen."""
    return Binding(
        key,
        f"screen.{binding.action}",
        binding.description,
        show=False,
        id=f"{binding.id}_letter",
        tooltip=binding.tooltip,
    )


LETTERS = (
    *(_by_letter(b, _LETTERS[b.id]) for b in COMMON if b.id in _LETTERS),
    Binding(
        "question_mark",
        "screen.explain",
        "Figures",
        show=False,
        key_display="?",
        id="app.explain",
        tooltip="what the figures on the screen mean; again: all of the help",
    ),
    Binding(
        "I",
        "screen.ink",
        "Ink",
        show=False,
        key_display="I",
        id="view.next_ink",
        tooltip="in the X-ray: colour by another property",
    ),
)
"""Letters for keys that a terminal or a keyboard may lack."""

CHAT = (
    Binding("escape", "stop", "Stop", id="chat.stop", tooltip="stop the reply, or a download"),
    Binding(
        "ctrl+r",
        "regenerate",
        "Retry",
        priority=True,
        id="chat.regenerate",
        tooltip="retry the last reply; without a model, load it again",
    ),
    Binding(
        "ctrl+n",
        "new_chat",
        "New",
        priority=True,
        show=False,  # the list of chats has one in its footer
        id="chat.new",
        tooltip="start a new chat",
    ),
    Binding(
        "ctrl+l",
        "chats",
        "Chats",
        priority=True,
        id="chat.list",
        tooltip="all chats: open, search, rename, delete",
    ),
    Binding(
        "ctrl+o",
        "model",
        "Models",
        priority=True,
        id="chat.model",
        tooltip="choose other models",
    ),
    Binding(
        "ctrl+f",
        "find",
        "Find",
        priority=True,
        show=False,
        id="chat.find",
        tooltip="search this chat",
    ),
    Binding(
        "ctrl+g",
        "editor",
        "Editor",
        priority=True,
        show=False,
        id="chat.editor",
        tooltip="write the message in your own editor, the one in $VISUAL or $EDITOR",
    ),
    Binding(
        "f6",
        "replay",
        "Replay",
        priority=True,  # a text area takes F6 for itself
        id="chat.replay",
        tooltip="step through the conversation round by round",
    ),
    *(binding for binding in COMMON if binding.id != "app.copy"),
    Binding(
        "ctrl+c,super+c",
        "copy_or_quit",
        "Copy, stop, clear, quit",
        show=False,
        priority=True,
        id="app.copy",
        tooltip="copy the selected text; without a selection end the reply, else clear the prompt "
        "(Up restores its text), else quit at a second press; in a dialog: back",
    ),
)

FIND = (
    Binding(
        "enter,up",
        "step(-1)",
        "Older",
        id="find.older",
        tooltip="while searching: the previous match",
    ),
    Binding(
        "shift+enter,down",
        "step(1)",
        "Newer",
        key_display="↓",
        id="find.newer",
        tooltip="while searching: the next match",
    ),
    Binding("escape", "close", "Close", id="find.close", tooltip="close the search"),
)

TREE_VIEWS = (
    Binding(
        "M",
        "screen.toggle_tree('mask')",
        "Mask",
        show=False,
        key_display="M",
        id="view.mask",
        tooltip="which drafted node sees which, as a matrix; again: the tree",
    ),
    Binding(
        "K",
        "screen.toggle_tree('tape')",
        "Cache rows",
        show=False,
        key_display="K",
        id="view.tape",
        tooltip="the rows of the cache: staged, kept, rolled back; again: the tree",
    ),
)

TRANSCRIPT = (
    Binding(
        "tab",
        "screen.write",
        "Write",
        id="transcript.write",
        tooltip="in the transcript: back to the prompt",
    ),
    Binding(
        "left,h",
        "token(-1)",
        "Token",
        show=False,
        id="transcript.before",
        tooltip="in the transcript: the previous token, who wrote it and instead of what",
    ),
    Binding(
        "right,l",
        "token(1)",
        "Token",
        id="transcript.after",
        tooltip="in the transcript: the next token",
    ),
    Binding(
        "enter",
        "screen.alternatives",
        "Alternatives",
        id="transcript.alternatives",
        tooltip="in the transcript: what else the model could have written in place of the "
        "token, and how probable that was; in the X-ray a click does it too, and Up, Down "
        "and Enter branch the reply from there with one of them",
    ),
    Binding(
        "up",
        "screen.pick(-1)",
        "Line up",
        show=False,
        id="transcript.up",
        tooltip="in the transcript: a line up; where other tokens are shown: mark the previous one",
    ),
    Binding(
        "down",
        "screen.pick(1)",
        "Line down",
        show=False,
        id="transcript.down",
        tooltip="in the transcript: a line down; where other tokens are shown: mark the next one",
    ),
    Binding(
        "left_square_bracket",
        "round(-1)",
        "Round",
        show=False,
        key_display="[",
        id="transcript.round_before",
        tooltip="in the transcript: the previous round",
    ),
    Binding(
        "right_square_bracket",
        "round(1)",
        "Round",
        show=False,
        key_display="]",
        id="transcript.round_after",
        tooltip="in the transcript: the next round",
    ),
    Binding(
        "k",
        "message(-1)",
        "Message",
        show=False,
        id="transcript.message_before",
        tooltip="in the transcript: the previous message, yours too",
    ),
    Binding(
        "j",
        "message(1)",
        "Message",
        id="transcript.message_after",
        tooltip="in the transcript: the next message",
    ),
    Binding(
        "y",
        "screen.copy_message",
        "Copy",
        id="transcript.copy",
        tooltip="in the transcript: copy the selected message, else the last reply",
    ),
    Binding(
        "c",
        "screen.copy_code",
        "Copy code",
        show=False,
        id="transcript.copy_code",
        tooltip="in the transcript: copy the selected code block, else the last one",
    ),
    Binding(
        "m",
        "screen.toggle_markdown",
        "Markdown",
        id="transcript.markdown",
        tooltip="in the transcript: the reply as rendered Markdown, or its tokens again",
    ),
    Binding(
        "z",
        "screen.toggle_reasoning",
        "Reasoning",
        show=False,
        id="transcript.reasoning",
        tooltip="in the transcript: show the reasoning of the reply, or fold it",
    ),
    Binding(
        "e",
        "screen.edit",
        "Edit",
        id="transcript.edit",
        tooltip="in the transcript: edit this message",
    ),
    Binding(
        "b",
        "screen.fork",
        "Fork",
        id="transcript.fork",
        tooltip="in the transcript: fork the chat: continue from here in a copy",
    ),
    Binding(
        "less_than_sign",
        "screen.version(-1)",
        "Version",
        show=False,
        key_display="<",
        id="transcript.version_before",
        tooltip="in the transcript: the previous version of an edited or retried message",
    ),
    Binding(
        "greater_than_sign",
        "screen.version(1)",
        "Version",
        show=False,
        key_display=">",
        id="transcript.version_after",
        tooltip="in the transcript: the next version",
    ),
    Binding(
        "g",
        "screen.scroll('start')",
        "Start",
        show=False,
        id="transcript.start",
        tooltip="in the transcript: the beginning of the chat",
    ),
    *TREE_VIEWS,
    *LETTERS,
)

PROMPT_KEYS = (
    ("Enter", "send the message; while a reply is being written it waits its turn"),
    ("Ctrl+J", "new line (also Shift+Enter where the terminal can send it)"),
    ("Up", "on the first line: the previous message, or the text that was cleared"),
    ("Ctrl+D", "on an empty prompt: quit; queued and unsent text is restored at the next start"),
    ("Ctrl+_", "undo; Ctrl+Y: redo"),
    ("@file", "attach the text of a file; Tab completes its name"),
    (
        "Tab",
        "to the transcript, where letters are keys, as the footer shows, and tokens can be "
        "inspected; letters that are not keys go to the prompt; Tab again, back to it",
    ),
)
