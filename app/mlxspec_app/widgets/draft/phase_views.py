"""The draft lane and the tree panel for a draft without its verdict.

A pending draft is drawn like the same draft with all tokens rejected, but with the sign and the
style of pending tokens.
"""

from textual.content import Content

from mlxspec.trace.events import DraftProposed, DraftVerified
from mlxspec_app.conversation.rounds import Round
from mlxspec_app.widgets.draft.cache_rows import pending_cache_rows
from mlxspec_app.widgets.draft.draft_lane import PROBS_FROM_WIDTH, DraftLane
from mlxspec_app.widgets.draft.lane_rows import MARK_STYLES, MUTED, token_row
from mlxspec_app.widgets.draft.round_view import PhaseView
from mlxspec_app.widgets.draft.tree_panel import TreePanel

_PENDING = "$spec-pending"
_PENDING_SIGN = "·"
_REJECTED_SIGN_STYLE = MARK_STYLES["rejected"].replace(" strike", "")
_LABEL_CELLS = 7


class PhaseLane(DraftLane, PhaseView):
    """A draft lane that can also show a draft before its verdict."""

    def render(self) -> Content:
        if self._draft is None or self.has_class("-plain"):
            return super().render()
        width, wide = self.size.width, self.size.width >= PROBS_FROM_WIDTH
        right = [size_of(self._draft), Content.styled(f"draft {self._draft.ms:.1f} ms", MUTED)]
        reserved = max(part.cell_length for part in right) + 2 if wide else 0
        cells = width - _LABEL_CELLS - reserved
        tokens, probs = token_row(pending_round(self._draft), cells, probs=wide)
        tokens = as_pending(tokens).truncate(cells)
        if not wide:
            figures = Content("  ").join(right)
            return Content("\n").join([_labelled("draft", tokens), _labelled("", figures)])
        rows = [_labelled("draft", tokens), _labelled("q", as_pending(probs).truncate(cells))]
        return Content("\n").join(
            row.pad_right(width - row.cell_length - part.cell_length) + part
            for row, part in zip(rows, right, strict=True)
        )


class PhaseTree(TreePanel, PhaseView):
    """A tree panel that can also show a draft before its verdict."""

    def render(self) -> Content:
        if self._draft is None:
            return super().render()
        pending = pending_round(self._draft)
        if self.view == "mask":
            return self.fitted(self.mask_of(pending))
        if self.view == "tape":
            committed = self._round.verdict.context if self._round is not None else 0
            return self.fitted(self.row_lines_of(pending, pending_cache_rows(pending, committed)))
        rows, hidden = self.tree_of(pending)
        title = Content.styled(f"draft tree, round {self._draft.r}  ", MUTED) + size_of(self._draft)
        if hidden:
            title += Content.styled(f"  {hidden} not shown", MUTED)
        return self.fitted([title, *(as_pending(row) for row in rows)])


def pending_round(draft: DraftProposed) -> Round:
    """Return the draft as a round that accepted no node and emitted no token."""
    return Round(draft, DraftVerified(draft.r, draft.ts, (), (), 0.0, 0, 0))


def as_pending(row: Content) -> Content:
    """Return a row of rejected tokens in the style of pending tokens."""
    signs = {span.start for span in row.spans if span.style == _REJECTED_SIGN_STYLE}
    plain = "".join(_PENDING_SIGN if i in signs else c for i, c in enumerate(row.plain))
    return Content.styled(plain, _PENDING)


def size_of(draft: DraftProposed) -> Content:
    """Return the number of nodes of a pending draft and, for a tree, its depth."""
    round_ = pending_round(draft)
    count = len(draft.nodes)
    shape = f"{count} nodes, depth {round_.depth}" if round_.is_tree else f"k={count}"
    return Content.assemble((f"{shape}  ", MUTED), ("pending", "$foreground"))


def _labelled(label: str, row: Content) -> Content:
    return Content.styled(label.ljust(_LABEL_CELLS), MUTED) + row
