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
from mlxspec_app.widgets.draft.round_view import RoundView

PROBS_FROM_WIDTH = 90
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
        width = self.size.width
        if self.has_class("-plain"):
            return self._plain(self._round, width)
        if self._round is None:
            return Content.styled("draft  the verdicts of the last round appear here", MUTED)
        if width < PROBS_FROM_WIDTH:
            return self._narrow(self._round, width)
        return self._wide(self._round, width)

    def _plain(self, round_: Round | None, width: int) -> Content:
        if round_ is None:
            return Content.styled("guess  the last guesses appear here", MUTED)
        right = guesses(round_)
        cells = width - _LABEL_CELLS - right.cell_length - 2
        tokens, _ = token_row(round_, cells, probs=False, styles=QUIET_STYLES)
        row = Content.styled("guess  ", MUTED) + tokens.truncate(cells)
        return row.pad_right(width - row.cell_length - right.cell_length) + right

    def _narrow(self, round_: Round, width: int) -> Content:
        tokens, _ = token_row(round_, width - _LABEL_CELLS, probs=False)
        first = Content.styled("draft  ", MUTED) + tokens.truncate(width - _LABEL_CELLS)
        figures = Content.assemble(outcome(round_), "  ", timing(round_))
        second = Content.styled(f"#{round_.verdict.r}".ljust(_LABEL_CELLS)[:_LABEL_CELLS], MUTED)
        return Content("\n").join([first, second + figures])

    def _wide(self, round_: Round, width: int) -> Content:
        right = (outcome(round_), timing(round_))
        cells = width - _LABEL_CELLS - max(part.cell_length for part in right) - 2
        tokens, probs = token_row(round_, cells, probs=True)
        below = "q/p" if round_.nodes else "p"
        labels = ("draft  ", (below if probs.plain.strip() else "").ljust(_LABEL_CELLS))
        rows = []
        for label, left, part in zip(labels, (tokens, probs), right, strict=True):
            row = Content.styled(label, MUTED) + left.truncate(cells)
            rows.append(row.pad_right(width - row.cell_length - part.cell_length) + part)
        return Content("\n").join(rows)
