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
from mlxspec_app.conversation.state import ChatState
from mlxspec_app.screens.steady import Dialog
from mlxspec_app.widgets.chat.explained import Explained, explained_in
from mlxspec_app.widgets.chat.key_footer import KeyFooter
from mlxspec_app.widgets.figures.context_rows import context_rows

_CONTEXT_WIDTH = 64
_FRAME_CELLS = 6


class ContextScreen(Dialog[None]):
    """Shows what fills the context; Escape, Enter or q closes it."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,enter,q", "dismiss", "Close")]
    DEFAULT_CSS = "ContextScreen > .box { padding: 1 2; }"

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
    DEFAULT_CSS = "FiguresScreen { align: center bottom; & > .box { padding: 0 2; } }"

    def __init__(self, definitions: Sequence[Definition]) -> None:
        super().__init__()
        self._definitions = definitions

    def compose(self) -> ComposeResult:
        rows = [
            Content.assemble((each.name, "$foreground bold"), (f"  {each.meaning}", "$spec-muted"))
            for each in self._definitions
        ]
        yield Static(Content("\n").join(rows), classes="box")
        yield KeyFooter()


def explain(screen: Screen[None], show_help: Callable[[], None]) -> None:
    """Explain the figures on a screen; where there are none, show its help page."""
    found = explained_in(screen.query(Explained), screen.region)
    if not found:
        show_help()
        return

    def then(wants_all: bool | None) -> None:
        if wants_all:
            show_help()

    screen.app.push_screen(FiguresScreen(found), then)


class GoToScreen(Dialog[int | None]):
    """Asks for the number of a round; Escape closes it without one."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss", "Back")]
    DEFAULT_CSS = """
    GoToScreen {
        align: center bottom;
        & > .box { height: 3; margin: 0 0 4 0; }
        & Label { width: auto; color: $spec-muted; }
        & Input, & Input:focus {
            width: 10;
            height: 1;
            border: none;
            padding: 0 1;
            background: $spec-line;
        }
    }
    """

    def __init__(self, num_rounds: int) -> None:
        super().__init__()
        self._num_rounds = num_rounds

    def compose(self) -> ComposeResult:
        with Horizontal(classes="box"):
            yield Label("go to round  ")
            yield Input(type="integer", max_length=len(str(self._num_rounds)) + 1)
            yield Label(f"  1 to {self._num_rounds} · Enter")
        yield KeyFooter()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        digits = event.value.lstrip("+-")
        self.dismiss(int(event.value) if digits.isdecimal() else None)


class PressKeyScreen(Dialog[str | None]):
    """Asks for the key of an action: the next key press is the result; Escape returns None."""

    DEFAULT_CSS = "PressKeyScreen > .box { max-width: 90%; }"

    def __init__(self, meaning: str) -> None:
        """Ask for the key of an action; `meaning` describes it."""
        super().__init__()
        self._meaning = meaning

    def compose(self) -> ComposeResult:
        yield Static(
            Content.assemble(
                ("Press the key for: ", "$foreground bold"),
                (self._meaning, "$foreground"),
                ("\nEsc cancels", "$spec-muted"),
            ),
            classes="box",
        )

    def on_key(self, event: events.Key) -> None:
        event.stop()
        event.prevent_default()
        self.dismiss(None if event.key == "escape" else event.key)
