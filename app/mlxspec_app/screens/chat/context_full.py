"""A dialog that asks what to do when the chat no longer fits the model's context."""

from collections.abc import Sequence
from typing import ClassVar, Literal, NamedTuple

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Checkbox, OptionList, Static
from textual.widgets.option_list import Option

from mlxspec_app.screens.steady import Dialog
from mlxspec_app.widgets.chat.key_footer import KeyFooter

Way = Literal["drop", "rotate", "new"]
"""`drop`: leave out the oldest turns; `rotate`: use a rotating cache; `new`: start a new chat."""

_MUTED = "$spec-muted"
_WAYS: dict[Way, tuple[str, str]] = {  # name and meaning
    "drop": (
        "Drop the oldest turns",
        "The model no longer sees them. Its answers to the rest are still exactly its own.",
    ),
    "rotate": (
        "Continue with a rotating cache",
        "The model is reloaded, and forgets its oldest tokens as it writes. This changes what "
        "the model itself says; drafts still change nothing.",
    ),
    "new": (
        "Start a new chat with this message",
        "The model sees none of the earlier turns.",
    ),
}


class ContextAnswer(NamedTuple):
    """The user's answer; with `is_for_good`, it applies from now on without asking."""

    way: Way
    is_for_good: bool


class TickBox(Checkbox):
    """A checkbox that is empty while it is off; Textual's own shows a dim X."""

    BUTTON_INNER = " "

    def watch_value(self) -> None:
        self.BUTTON_INNER = "X" if self.value else " "
        super().watch_value()


class ContextFullScreen(Dialog[ContextAnswer | None]):
    """Asks the user; Escape leaves the turn without a reply."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss", "Cancel")]
    DEFAULT_CSS = """
    ContextFullScreen {
        & > .box { width: 90%; max-width: 72; overflow-y: auto; }
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
        & Checkbox, & Checkbox:focus { border: none; padding: 0; background: $background; }
    }
    """

    def __init__(self, ways: Sequence[Way], context_length: int) -> None:
        """Offer the ways that can get a reply; `context_length` is in tokens, 0 if unknown."""
        super().__init__()
        self.ways, self._context_length = ways, context_length

    def compose(self) -> ComposeResult:
        limit = f" of {self._context_length} tokens" if self._context_length else ""
        fits = "The chat no longer fits" if "new" in self.ways else "This message alone exceeds"
        question = f"{fits} the model's context{limit}."
        options = [
            Content.assemble((name, "$foreground bold"), "\n", (meaning, _MUTED))
            for name, meaning in map(_WAYS.__getitem__, self.ways)
        ]
        with Vertical(classes="box"):
            yield Static(Content.styled(question, "$foreground bold"))
            yield OptionList(*map(Option, options))
            yield TickBox("always do this (F5 changes it)", value=False)
            yield Static(Content.styled("Enter chooses · Tab, Space · Esc cancels", _MUTED))
        yield KeyFooter()

    @on(OptionList.OptionSelected)
    def _answer(self, event: OptionList.OptionSelected) -> None:
        is_for_good = self.query_one(Checkbox).value
        self.dismiss(ContextAnswer(self.ways[event.option_index], is_for_good))
