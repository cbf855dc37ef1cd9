"""The draft tree panel: the last finished round as a tree, as a mask, or as its cache rows."""

from typing import Literal, get_args

from textual.content import Content
from textual.geometry import Size

from mlxspec_app.conversation.rounds import Round
from mlxspec_app.widgets.draft.cache_rows import LEGEND, CacheRows, cache_rows_of, row_lines
from mlxspec_app.widgets.draft.draft_lane import RoundView, as_pending, outcome
from mlxspec_app.widgets.draft.marks import MUTED
from mlxspec_app.widgets.draft.mask_rows import mask_rows
from mlxspec_app.widgets.draft.tree_rows import indented_rows, tree_rows

TreeView = Literal["tree", "mask", "tape"]
VIEWS: tuple[TreeView, ...] = get_args(TreeView)
"""`tree`: the draft tree; `mask`: which node sees which; `tape`: the rows of the cache that were
staged, committed and rolled back."""

_COLUMNS_FROM_WIDTH = 80


class TreePanel(RoundView):
    """Shows the draft tree of a round, its mask or its cache rows.

    The height is fixed, except for a mask, which grows to the largest number of nodes so far.
    """

    def __init__(self) -> None:
        super().__init__()
        self.view: TreeView = "tree"
        self._most_nodes = 0

    def toggle(self, view: str = "") -> None:
        """Show the panel in a view, one of `VIEWS`; "" is the last view, and hides a visible panel.

        A view that is shown already changes to the tree, and the tree is hidden.
        """
        is_shown = self.has_class("-shown")
        chosen = next((each for each in VIEWS if each == view), self.view)
        if is_shown and chosen == self.view:
            self.set_class(bool(view) and chosen != "tree", "-shown")
            chosen = "tree" if view else chosen
        else:
            self.set_class(True, "-shown")
        self.view = chosen
        self.set_class(self.view == "mask", "-mask")
        self.refresh(layout=True)

    def show(self, round_: Round | None) -> None:
        super().show(round_)
        if round_ is not None and len(round_.nodes) > self._most_nodes:
            self._most_nodes = len(round_.nodes)
            self.refresh(layout=self.view == "mask")

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return 1 + (self._most_nodes + 2) // 2  # the title; two nodes a row, the root included

    def render(self) -> Content:
        round_ = self.pending or self.shown
        if round_ is None:
            return Content.styled("draft tree  appears with the first round", MUTED)
        rows = {"tree": self._tree, "mask": self._mask, "tape": self._cache_rows}[self.view](round_)
        width = self.size.width
        return Content("\n").join(row.truncate(width, ellipsis=True) for row in rows)

    def _tree(self, round_: Round) -> list[Content]:
        """Return a title, and the draft tree below it."""
        width, height = self.size
        is_pending = round_ is not self.shown
        if width < _COLUMNS_FROM_WIDTH:
            rows, hidden = indented_rows(round_, height - 1, width)
        else:
            rows, hidden = tree_rows(round_, height - 1)
        title = Content.styled(f"draft tree, round {round_.verdict.r}  ", MUTED)
        title += outcome(round_, is_pending=is_pending) + _not_shown(hidden)
        return [title, *(map(as_pending, rows) if is_pending else rows)]

    def _mask(self, round_: Round) -> list[Content]:
        width, height = self.size
        rows, hidden = mask_rows(round_, width, max(1, height - 1))
        title = Content.assemble(
            (f"ancestor mask, round {round_.verdict.r}  ", MUTED),
            ("filled: row sees column  ", "$foreground"),
            (f"itself or above it, and the cache; {len(round_.nodes) + 1} nodes, two a row", MUTED),
        )
        return [title + _not_shown(hidden), *rows]

    def _cache_rows(self, round_: Round) -> list[Content]:
        cache_rows = cache_rows_of(round_)
        if round_ is not self.shown:
            committed = self.shown.verdict.context if self.shown is not None else 0
            cache_rows = CacheRows(committed, len(round_.nodes) + 1, None)
        title = Content.assemble(
            (f"cache rows, round {round_.verdict.r}  ", MUTED),
            (f"{cache_rows.committed:,} rows + {cache_rows.staged}  ", "$foreground"),
            (LEGEND, MUTED),
        )
        return [title, *row_lines(cache_rows, self.size.width)]


def _not_shown(hidden: int) -> Content:
    return Content.styled(f"  {hidden} not shown" if hidden else "", MUTED)
