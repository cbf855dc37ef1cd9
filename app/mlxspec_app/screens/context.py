"""A dialog that shows what fills the context."""

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.widgets import Static

from mlxspec_app.conversation.state import ChatState
from mlxspec_app.screens.steady import SteadyModal
from mlxspec_app.widgets.chat.key_footer import KeyFooter
from mlxspec_app.widgets.figures.context_rows import context_rows

_WIDTH = 64
_FRAME_CELLS = 6


class ContextScreen(SteadyModal[None]):
    """Shows the present context; Escape, Enter or q closes it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,enter,q", "dismiss", "Close"),
        Binding("ctrl+c", "dismiss", "Back", show=False, priority=True),
    ]
    DEFAULT_CSS = """
    ContextScreen {
        align: center middle;
        & > Static {
            width: auto;
            height: auto;
            padding: 1 2;
            background: $background;
            border: round $border;
        }
    }
    """

    def __init__(self, state: ChatState) -> None:
        super().__init__()
        self._state = state

    def compose(self) -> ComposeResult:
        yield Static()
        yield KeyFooter()

    def on_resize(self) -> None:
        width = min(_WIDTH, self.app.size.width - _FRAME_CELLS)
        self.query_one(Static).update(Content("\n").join(context_rows(self._state, width)))
