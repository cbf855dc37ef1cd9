"""A dialog that asks for the key of an action: the next key press is the answer."""

from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.widgets import Static

from mlxspec_app.screens.steady import SteadyModal


class PressKeyScreen(SteadyModal[str | None]):
    """Returns the next key; Escape returns None."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+c", "dismiss(None)", "Back", show=False, priority=True),
    ]
    DEFAULT_CSS = """
    PressKeyScreen {
        align: center middle;
        & > Static {
            width: auto;
            max-width: 90%;
            height: auto;
            padding: 0 1;
            background: $background;
            border: round $border;
        }
    }
    """

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
            )
        )

    def on_key(self, event: events.Key) -> None:
        event.stop()
        event.prevent_default()
        self.dismiss(None if event.key == "escape" else event.key)
