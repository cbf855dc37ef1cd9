"""A list of choices: a first click highlights a row, a second one or Enter chooses it."""

from collections.abc import Sequence

from textual import events
from textual.content import Content
from textual.widgets import OptionList


class ChoiceList(OptionList):
    """Rows of text with one of them highlighted."""

    DEFAULT_CSS = """
    ChoiceList {
        width: 1fr;
        height: 1fr;
        border: round $border-blurred;
        border-title-color: $spec-muted;
        border-subtitle-color: $spec-muted;
        padding: 0;
        background: $background;
        text-wrap: nowrap;
        text-overflow: ellipsis;
        scrollbar-size-vertical: 1;
        &:focus {
            border: round $border;
            border-title-color: $foreground;
            background-tint: transparent;
        }
        & > .option-list--option { padding: 0; }
        & > .option-list--option-highlighted {
            background: $spec-line;
            color: $foreground;
            text-style: none;
        }
        &:focus > .option-list--option-highlighted {
            background: $spec-line;
            text-style: none;
        }
    }
    """

    def __init__(self, title: str, *, id: str) -> None:
        super().__init__(id=id)
        self.border_title = title

    def show(self, rows: Sequence[Content], highlighted: int | None) -> None:
        """Replace the rows, and highlight one of them."""
        self.clear_options()
        self.add_options(rows)
        self.highlighted = highlighted

    def on_click(self, event: events.Click) -> None:
        """Highlight the clicked row first; choose it only if it already was highlighted."""
        clicked = event.style.meta.get("option")
        if clicked is not None and clicked != self.highlighted:
            self.highlighted = clicked
            event.prevent_default()
