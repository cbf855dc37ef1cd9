"""The table below the lanes of a race: estimated speeds with other numbers of draft tokens."""

from collections.abc import Sequence

from textual.content import Content
from textual.widget import Widget

from mlxspec_app.conversation.messages import Reply
from mlxspec_app.playback.what_if import MOST_DRAFTED, best, outlooks
from mlxspec_app.widgets.playback.what_if_rows import what_if_rows

_TITLE = "expected from these traces, if drafts were chains of k"
_LEGEND = "* fastest   ~ between measured widths   ↑ ↓ k   w closes"


class WhatIfPanel(Widget):
    """A table of estimates, hidden until the user opens it."""

    DEFAULT_CSS = """
    WhatIfPanel {
        display: none;
        height: auto;
        max-height: 60%;
        padding: 0 1;
        border-top: solid $spec-line;
        text-wrap: nowrap;
        text-overflow: ellipsis;
        &.-shown { display: block; }
    }
    """

    def __init__(self, runs: Sequence[tuple[str, Sequence[Reply]]]) -> None:
        """Make the table of named runs; it starts at the fastest k of the first run with drafts."""
        super().__init__()
        found = outlooks([replies for _, replies in runs])
        self._runs = [(name, outlook) for (name, _), outlook in zip(runs, found, strict=True)]
        fastest = (best(outlook.expected) for _, outlook in self._runs)
        self._k = next((one.k for one in fastest if one is not None), 1)

    def move(self, step: int) -> None:
        """Choose another k, if the table is open."""
        if self.has_class("-shown"):
            self._k = min(MOST_DRAFTED, max(1, self._k + step))
            self.refresh()

    def render(self) -> Content:
        head = [Content.styled(_TITLE, "$foreground"), Content.styled(_LEGEND, "$spec-muted")]
        rows = what_if_rows(self._runs, self._k, max(1, self.size.width))
        return Content("\n").join([*head, *rows])
