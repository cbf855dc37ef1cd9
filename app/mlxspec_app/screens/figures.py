"""A dialog that explains the figures on the screen, for those who use no pointer."""

from collections.abc import Callable, Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.screen import Screen
from textual.widgets import Static

from mlxspec_app.conversation.definitions import Definition
from mlxspec_app.screens.steady import SteadyModal
from mlxspec_app.widgets.chat.explained import Explained, explained_in
from mlxspec_app.widgets.chat.key_footer import KeyFooter


class FiguresScreen(SteadyModal[bool]):
    """Explains figures; returns whether the user asks for the whole help page."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,enter,q", "dismiss(False)", "Close"),
        Binding("f1,question_mark", "dismiss(True)", "Full help"),
        Binding("ctrl+c", "dismiss(False)", "Back", show=False, priority=True),
    ]
    DEFAULT_CSS = """
    FiguresScreen {
        align: center bottom;
        & > Static {
            width: auto;
            max-width: 100%;
            height: auto;
            max-height: 100%;
            padding: 0 2;
            background: $background;
            border: round $border;
        }
    }
    """

    def __init__(self, definitions: Sequence[Definition]) -> None:
        super().__init__()
        self._definitions = definitions

    def compose(self) -> ComposeResult:
        rows = [
            Content.assemble((each.name, "$foreground bold"), (f"  {each.meaning}", "$spec-muted"))
            for each in self._definitions
        ]
        yield Static(Content("\n").join(rows))
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
