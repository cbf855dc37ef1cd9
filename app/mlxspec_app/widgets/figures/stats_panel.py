"""The panel with the figures of a reply: acceptance, accepted lengths, and shares of the time."""

from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import Static

from mlxspec_app.conversation.messages import Reply
from mlxspec_app.widgets.chat.explained import Explained
from mlxspec_app.widgets.figures.stats_rows import stats_rows


class _Figures(Explained, Static):
    """The rows of the panel."""


class StatsPanel(VerticalScroll, can_focus=False):
    """Shows the figures of one reply, finished or running."""

    DEFAULT_CSS = """
    StatsPanel {
        width: 42;
        padding: 1 1 0 2;
        border-left: solid $spec-line;
        scrollbar-size-vertical: 1;
        scrollbar-gutter: stable;
    }
    """

    def __init__(self) -> None:
        super().__init__()
        self._num_rows = 0

    def compose(self) -> ComposeResult:
        yield _Figures(id="figures")

    def show(self, reply: Reply | None) -> None:
        width = max(20, self.scrollable_content_region.width)
        rows = stats_rows(reply, width)
        is_as_high = len(rows) == self._num_rows  # then no new layout is needed
        self._num_rows = len(rows)
        self.query_one("#figures", Static).update(Content("\n").join(rows), layout=not is_as_high)
