"""The draft lane: two rows above the prompt with the verdicts of the last finished round.

Its height is the same while text streams, so nothing jumps. It shows a new round only a few times
a second: nobody could read more, and the trace has them all.
"""

from collections.abc import Mapping

from textual.content import Content
from textual.widget import Widget

from mlxspec.trace.events import DraftProposed, DraftVerified
from mlxspec_app.conversation.figures import prob
from mlxspec_app.conversation.rounds import Mark, Position, Round, positions
from mlxspec_app.widgets.chat.explained import Explained
from mlxspec_app.widgets.draft.marks import MARK_STYLES, MUTED, QUIET_STYLES, marked

_PROBS_FROM_WIDTH = 90
_LABEL_CELLS = 7
_MOST_SIBLINGS = 2
_PENDING = "$spec-pending"
_PENDING_SIGN = "·"
_REJECTED_SIGN_STYLE = MARK_STYLES["rejected"].replace(" strike", "")


class RoundView(Widget):
    """Shows one finished round, or none; a replay also shows a draft that has no verdict yet."""

    ALLOW_SELECT = False

    def __init__(self) -> None:
        super().__init__()
        self.shown: Round | None = None
        self._draft: DraftProposed | None = None

    @property
    def pending(self) -> Round | None:
        """The draft as a round that accepted no node and emitted no token."""
        draft = self._draft
        if draft is None:
            return None
        return Round(draft, DraftVerified(draft.r, draft.ts, (), (), 0.0, 0, 0))

    def show(self, round_: Round | None) -> None:
        if round_ is not self.shown:
            self.shown = round_
            self.refresh()

    def show_phase(self, view: Round | DraftProposed | None) -> None:
        """Show a draft or an uncommitted round; None keeps the last finished round."""
        draft = view if isinstance(view, DraftProposed) else None
        if draft is not self._draft:
            self._draft = draft
            self.refresh()
        if isinstance(view, Round):
            self.show(view)


class DraftLane(Explained, RoundView):
    """Shows one round with q/p below each token, or in a narrow terminal with figures below.

    Outside the X-ray it has one row, and only while a reply is written: the guesses, and what
    stands in place of a wrong one.
    """

    def render(self) -> Content:
        width, pending = self.size.width, self.pending
        if self.has_class("-plain"):
            return self._plain(self.shown, width)
        round_, is_pending = pending or self.shown, pending is not None
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


def as_pending(row: Content) -> Content:
    """Return a row of rejected tokens in the style of pending tokens."""
    signs = {span.start for span in row.spans if span.style == _REJECTED_SIGN_STYLE}
    plain = "".join(_PENDING_SIGN if i in signs else c for i, c in enumerate(row.plain))
    return Content.styled(plain, _PENDING)


def token_row(
    round_: Round, width: int, *, probs: bool, styles: Mapping[Mark, str] = MARK_STYLES
) -> tuple[Content, Content]:
    """Return the tokens of a round and, aligned below them, q/p if `probs` is set."""
    tokens, figures = Content(""), Content("")
    for position in positions(round_):
        shown = _position_cells(position, styles)
        below = Content.styled(_probs(position) if probs else "", MUTED)
        cells = max(shown.cell_length, below.cell_length)
        if tokens.cell_length + cells > width:
            tokens += Content.styled("…", MUTED)
            break
        tokens += shown.pad_right(cells - shown.cell_length + 2)
        figures += below.pad_right(cells - below.cell_length + 2)
    return tokens, figures


def outcome(round_: Round, *, is_pending: bool = False) -> Content:
    """Return the number of draft nodes, and of accepted and other emitted tokens."""
    drafted = len(round_.nodes)
    own = len(round_.verdict.emit) - round_.accepted
    if not drafted and not is_pending:
        return Content.styled("no draft", MUTED)
    shape = f"{drafted} nodes, depth {round_.depth}" if round_.is_tree else f"k={drafted}"
    kept = (f"kept {round_.accepted}", "$foreground bold")
    if is_pending:
        kept = ("pending", "$foreground")
    more = (f" +{own}" if own > 0 else "", "$foreground bold")
    return Content.assemble((f"{shape}  ", MUTED), kept, more)


def guesses(round_: Round) -> Content:
    """Return in plain words how many guesses of a round were right."""
    drafted = round_.depth if round_.is_tree else len(round_.nodes)
    if not drafted:
        return Content.styled("no guess", MUTED)
    return Content.styled(f"{round_.accepted} of {drafted} right", MUTED)


def timing(round_: Round, *, is_pending: bool = False) -> Content:
    """Return the milliseconds of drafting and verification."""
    verdict = round_.verdict
    if not isinstance(verdict, DraftVerified) or round_.draft is None:
        return Content.styled(f"target {verdict.ms:.1f} ms", MUTED)
    verified = "" if is_pending else f" │ verify {verdict.ms:.1f} ms"
    return Content.styled(f"draft {round_.draft.ms:.1f} ms{verified}", MUTED)


def _position_cells(position: Position, styles: Mapping[Mark, str]) -> Content:
    losers = [marked(token, styles) for token in position if token.mark == "rejected"]
    hidden = len(losers) - _MOST_SIBLINGS
    if hidden > 0:
        losers[_MOST_SIBLINGS:] = [Content.styled(f"+{hidden}", MUTED)]
    winners = [marked(token, styles) for token in position if token.mark != "rejected"]
    in_order = winners + losers if position[0].mark == "accepted" else losers + winners
    return Content(" ").join(in_order)


def _probs(position: Position) -> str:
    """Return q/p of an accepted token, or q of a rejected one and p of the corrected token."""
    first, last = position[0], position[-1]
    if first.mark == "accepted":
        return f"{prob(first.draft_prob)}/{prob(first.target_prob)}".strip("/")
    if first.mark == "rejected" and last.mark in ("corrected", "bonus"):
        return f"{prob(first.draft_prob)} → {prob(last.target_prob)}"
    return prob(first.draft_prob) or prob(first.target_prob)
