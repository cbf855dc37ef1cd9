"""A dialog that asks what to do when the chat no longer fits the model's context."""

from collections.abc import Sequence
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Checkbox, OptionList, Static
from textual.widgets.option_list import Option

from mlxspec_app.screens.chat.context_overflow import ContextAnswer, Way
from mlxspec_app.screens.steady import SteadyModal
from mlxspec_app.widgets.chat.key_footer import KeyFooter

_MUTED = "$spec-muted"
_NAMES: dict[Way, str] = {
    "drop": "Drop the oldest turns",
    "rotate": "Continue with a rotating cache",
    "new": "Start a new chat with this message",
}
_MEANINGS: dict[Way, str] = {
    "drop": "The model no longer sees them. Its answers to the rest are still exactly its own.",
    "rotate": "The model is reloaded, and forgets its oldest tokens as it writes. This changes "
    "what the model itself says; drafts still change nothing.",
    "new": "The model sees none of the earlier turns.",
}


class TickBox(Checkbox):
    """A checkbox that is empty while it is off; Textual's own shows a dim X."""

    BUTTON_INNER = " "

    def watch_value(self) -> None:
        self.BUTTON_INNER = "X" if self.value else " "
        super().watch_value()


class ContextFullScreen(SteadyModal[ContextAnswer | None]):
    """Asks the user; Escape leaves the turn without a reply."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss(None)", "Cancel"),
        Binding("ctrl+c", "dismiss(None)", "Back", show=False, priority=True),
    ]
    DEFAULT_CSS = """
    ContextFullScreen {
        align: center middle;
        & > Vertical {
            width: 90%;
            max-width: 72;
            height: auto;
            max-height: 100%;
            padding: 0 1;
            background: $background;
            border: round $border;
            overflow-y: auto;
        }
        & OptionList, & OptionList:focus {
            height: auto;
            margin: 1 0;
            padding: 0;
            border: none;
            background: $background;
            background-tint: $background 0%;
            & > .option-list--option { padding: 0 1; }
            & > .option-list--option-highlighted { background: $spec-line; text-style: none; }
        }
        & Checkbox, & Checkbox:focus {
            border: none;
            padding: 0;
            background: $background;
        }
    }
    """

    def __init__(self, ways: Sequence[Way], context_length: int) -> None:
        """Offer the ways that can get a reply; `context_length` is in tokens, 0 if unknown."""
        super().__init__()
        self._ways = ways
        self._context_length = context_length

    def compose(self) -> ComposeResult:
        with Vertical():
            yield Static(self._question())
            yield OptionList(*(Option(_option(way), way) for way in self._ways))
            yield TickBox("always do this (F5 changes it)", value=False)
            yield Static(Content.styled("Enter chooses · Tab, Space · Esc cancels", _MUTED))
        yield KeyFooter()

    @on(OptionList.OptionSelected)
    def _answer(self, event: OptionList.OptionSelected) -> None:
        is_for_good = self.query_one(Checkbox).value
        self.dismiss(ContextAnswer(self._ways[event.option_index], is_for_good))

    def _question(self) -> Content:
        limit = f" of {self._context_length} tokens" if self._context_length else ""
        fits = "The chat no longer fits" if "new" in self._ways else "This message alone exceeds"
        return Content.styled(f"{fits} the model's context{limit}.", "$foreground bold")


def _option(way: Way) -> Content:
    return Content.assemble((_NAMES[way], "$foreground bold"), "\n", (_MEANINGS[way], _MUTED))
