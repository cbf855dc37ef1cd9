"""The draft lane: two rows above the prompt with the verdicts of the last finished round.

Its height never changes, so nothing jumps while text streams. It shows a new round only a few times
a second: nobody could read more, and the trace has them all.
"""

from textual.content import Content

from mlxspec_app.conversation.rounds import Round
from mlxspec_app.widgets.chat.explained import Explained
from mlxspec_app.widgets.draft.lane_rows import (
    MUTED,
    QUIET_STYLES,
    guesses,
    outcome,
    timing,
    token_row,
)
from mlxspec_app.widgets.draft.round_view import RoundView, as_pending

_PROBS_FROM_WIDTH = 90
_LABEL_CELLS = 7


class DraftLane(Explained, RoundView):
    """Shows one round with q/p below each token, or in a narrow terminal with figures below.

    Outside the X-ray it has one row: the guesses, and what the model wrote instead of a wrong one.
    """

    DEFAULT_CSS = """
    DraftLane {
        height: 3;
        padding: 0 1;
        border-top: solid $spec-line;
        text-wrap: nowrap;
        text-overflow: ellipsis;
        &.-plain { height: 2; }
    }
    """

    def render(self) -> Content:
        width, pending = self.size.width, self.pending
        if self.has_class("-plain"):
            return self._plain(self._round, width)
        round_, is_pending = pending or self._round, pending is not None
        if round_ is None:
            return Content.styled("draft  the verdicts of the last round appear here", MUTED)
        right = (outcome(round_, is_pending=is_pending), timing(round_, is_pending=is_pending))
        is_wide = width >= _PROBS_FROM_WIDTH
        cells = width - _LABEL_CELLS
        if is_wide:
            cells -= max(part.cell_length for part in right) + 2
        tokens, probs = token_row(round_, cells, probs=is_wide)
        has_probs = bool(probs.plain.strip())
        if is_pending:
            tokens, probs = as_pending(tokens), as_pending(probs)
        first = _labelled("draft", tokens.truncate(cells))
        if not is_wide:
            number = "" if is_pending else f"#{round_.verdict.r}"
            return Content("\n").join([first, _labelled(number, Content("  ").join(right))])
        below = "q" if is_pending else "q/p" if round_.nodes else "p"
        second = _labelled(below if has_probs or is_pending else "", probs.truncate(cells))
        return Content("\n").join(
            row.pad_right(width - row.cell_length - part.cell_length) + part
            for row, part in zip((first, second), right, strict=True)
        )

    def _plain(self, round_: Round | None, width: int) -> Content:
        if round_ is None:
            return Content.styled("guess  the last guesses appear here", MUTED)
        right = guesses(round_)
        cells = width - _LABEL_CELLS - right.cell_length - 2
        tokens, _ = token_row(round_, cells, probs=False, styles=QUIET_STYLES)
        row = Content.styled("guess  ", MUTED) + tokens.truncate(cells)
        return row.pad_right(width - row.cell_length - right.cell_length) + right


def _labelled(label: str, row: Content) -> Content:
    return Content.styled(label.ljust(_LABEL_CELLS)[:_LABEL_CELLS], MUTED) + row
