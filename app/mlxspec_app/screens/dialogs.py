"""The small dialogs: boxes over a screen that show something, or ask for one thing."""

from collections.abc import Callable, Sequence
from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.content import Content
from textual.screen import Screen
from textual.widgets import Input, Label, Static

from mlxspec_app.conversation.figures import Definition
from mlxspec_app.conversation.messages import Reply
from mlxspec_app.conversation.state import ChatState
from mlxspec_app.screens.steady import Dialog
from mlxspec_app.text.safe_text import safe_line
from mlxspec_app.widgets.chat.explained import Explained, explained_in
from mlxspec_app.widgets.chat.key_footer import KeyFooter
from mlxspec_app.widgets.draft.marks import MUTED
from mlxspec_app.widgets.stats_panel import bar_row, heading

_CONTEXT_WIDTH = 64
_FRAME_CELLS = 6
_NAME_CELLS = 26
_NOTHING = "empty: it fills with the first reply"


class ContextScreen(Dialog[None]):
    """Shows what fills the context; Escape, Enter or q closes it."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,enter,q", "dismiss", "Close")]

    def __init__(self, state: ChatState) -> None:
        super().__init__()
        self._state = state

    def compose(self) -> ComposeResult:
        yield Static(classes="box")
        yield KeyFooter()

    def on_resize(self) -> None:
        width = min(_CONTEXT_WIDTH, self.app.size.width - _FRAME_CELLS)
        self.query_one(Static).update(Content("\n").join(context_rows(self._state, width)))


class FiguresScreen(Dialog[bool]):
    """Explains figures; returns whether the user asks for the whole help page."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,enter,q", "dismiss(False)", "Close"),
        Binding("f1,question_mark", "dismiss(True)", "Full help"),
    ]

    def __init__(self, definitions: Sequence[Definition]) -> None:
        super().__init__()
        self._definitions = definitions

    def compose(self) -> ComposeResult:
        rows = [
            Content.assemble((each.name, "$foreground bold"), (f"  {each.meaning}", MUTED))
            for each in self._definitions
        ]
        yield Static(Content("\n").join(rows), classes="box")
        yield KeyFooter()


def explain(screen: Screen[None], show_help: Callable[[], None]) -> None:
    """Explain the figures on a screen; where there are none, show its help page."""
    found = explained_in(screen.query(Explained), screen.region)
    if found:
        screen.app.push_screen(FiguresScreen(found), lambda asks: show_help() if asks else None)
    else:
        show_help()


class GoToScreen(Dialog[int | None]):
    """Asks for the number of a round; Escape closes it without one."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss", "Back")]

    def __init__(self, num_rounds: int) -> None:
        super().__init__()
        self._num_rounds = num_rounds

    def compose(self) -> ComposeResult:
        with Horizontal(classes="box"):
            yield Label("go to round  ")
            digits = len(str(self._num_rounds)) + 1
            yield Input(type="integer", max_length=digits, compact=True)
            yield Label(f"  1 to {self._num_rounds} · Enter")
        yield KeyFooter()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        digits = event.value.lstrip("+-")
        self.dismiss(int(event.value) if digits.isdecimal() else None)


class PressKeyScreen(Dialog[str | None]):
    """Asks for the key of an action: the next key press is the result; Escape returns None."""

    def __init__(self, meaning: str) -> None:
        super().__init__()
        self._meaning = meaning

    def compose(self) -> ComposeResult:
        yield Static(
            Content.assemble(
                ("Press the key for: ", "$foreground bold"),
                (self._meaning, "$foreground"),
                ("\nEsc cancels", MUTED),
            ),
            classes="box",
        )

    def on_key(self, event: events.Key) -> None:
        event.stop()
        event.prevent_default()
        self.dismiss(None if event.key == "escape" else event.key)


def context_rows(state: ChatState, width: int) -> list[Content]:
    """Return the rows, each at most `width` cells wide if that leaves a cell for a bar."""
    reply = state.reply
    if reply is None or not state.context:
        return [heading("context", "", width), Content.styled(_NOTHING, MUTED)]
    length = state.context_length
    used = f"{state.context:,} of {length:,} tokens" if length else f"{state.context:,} tokens"
    rows = [heading("context", used, width)]
    for name, count, style in _parts(state, reply):
        label, figure = (name.ljust(_NAME_CELLS), MUTED), (f"{count:>9,}", "$foreground")
        rows.append(bar_row(width, label, count / (length or state.context), style, figure))
    return [*rows, Content(""), *(Content.styled(line, MUTED) for line in _notes(state, reply))]


def _parts(state: ChatState, reply: Reply) -> list[tuple[str, int, str]]:
    """Return the parts of the context as (name, number of tokens, colour)."""
    written = [m.stats.generated_tokens for m in state.messages if isinstance(m, Reply)]
    last = min(state.context, reply.stats.generated_tokens)
    earlier = min(state.context - last, sum(written) - reply.stats.generated_tokens)
    parts = [
        ("the last reply", last, "$spec-accepted"),
        ("replies before it", earlier, "$spec-accepted"),
        ("questions and the template", state.context - last - earlier, "$foreground"),
    ]
    if state.context_length:
        parts.append(("room left", max(0, state.context_length - state.context), MUTED))
    return parts


def _notes(state: ChatState, reply: Reply) -> list[str]:
    notes = []
    if reply.prefill is not None:
        total, reused = reply.prefill.total, reply.prefill.reused
        notes.append(f"the last turn read {total - reused:,} tokens; {reused:,} were still cached")
    if reply.started is not None:
        notes.append(f"cache: {safe_line(reply.started.cache)}")
        if reply.started.drafts:
            notes.append(f"the model verifies {safe_line(reply.started.drafts)}")
        if not state.context_length:
            notes.append("it never fills: the oldest rows make way for new ones")
    return notes
