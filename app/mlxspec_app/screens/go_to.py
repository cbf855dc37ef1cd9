"""A dialog that asks for the number of a round to go to."""

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.widgets import Input, Label

from mlxspec_app.screens.steady import SteadyModal
from mlxspec_app.widgets.chat.key_footer import KeyFooter


class GoToScreen(SteadyModal[int | None]):
    """Asks for the number of a round; Escape closes it without one."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss(None)", "Back"),
        Binding("ctrl+c", "dismiss(None)", "Back", show=False, priority=True),
    ]
    DEFAULT_CSS = """
    GoToScreen {
        align: center bottom;
        & > Horizontal {
            width: auto;
            height: 3;
            margin: 0 0 4 0;
            padding: 0 1;
            background: $background;
            border: round $border;
        }
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
        with Horizontal():
            yield Label("go to round  ")
            yield Input(type="integer", max_length=len(str(self._num_rounds)) + 1)
            yield Label(f"  1 to {self._num_rounds} · Enter")
        yield KeyFooter()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        digits = event.value.lstrip("+-")
        self.dismiss(int(event.value) if digits.isdecimal() else None)
