"""The draft tree panel: the last finished round as a tree, in a fixed number of rows."""

from textual.content import Content

from mlxspec_app.widgets.lane_rows import MUTED, outcome
from mlxspec_app.widgets.round_view import RoundView
from mlxspec_app.widgets.tree_rows import tree_rows


class TreePanel(RoundView):
    """Shows what was drafted, branch by branch, and how far the target followed."""

    DEFAULT_CSS = """
    TreePanel {
        height: 9;
        padding: 0 1;
        border-top: solid $spec-line;
        text-wrap: nowrap;
        text-overflow: ellipsis;
    }
    """

    def render(self) -> Content:
        if self._round is None:
            return Content.styled("draft tree  appears with the first round", MUTED)
        width, height = self.size
        rows, hidden = tree_rows(self._round, height - 1)
        title = Content.styled(f"draft tree, round {self._round.verdict.r}  ", MUTED)
        title += outcome(self._round)
        if hidden:
            title += Content.styled(f"  {hidden} not shown", MUTED)
        return Content("\n").join(row.truncate(width, ellipsis=True) for row in (title, *rows))
