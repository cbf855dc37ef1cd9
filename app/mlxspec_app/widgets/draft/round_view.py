"""The base of the widgets that show a round: the last finished one, or a draft before its verdict.

A pending draft is drawn like a round that rejected all of its tokens, but with the sign and the
style of pending tokens.
"""

from textual.content import Content
from textual.widget import Widget

from mlxspec.trace.events import DraftProposed, DraftVerified
from mlxspec_app.conversation.rounds import Round
from mlxspec_app.widgets.draft.lane_rows import MARK_STYLES

_PENDING = "$spec-pending"
_PENDING_SIGN = "·"
_REJECTED_SIGN_STYLE = MARK_STYLES["rejected"].replace(" strike", "")


class RoundView(Widget):
    """Shows one finished round, or none; a replay also shows a draft that has no verdict yet."""

    ALLOW_SELECT = False

    def __init__(self) -> None:
        super().__init__()
        self._round: Round | None = None
        self._draft: DraftProposed | None = None

    @property
    def shown(self) -> Round | None:
        """The last finished round."""
        return self._round

    @property
    def pending(self) -> Round | None:
        """The draft as a round that accepted no node and emitted no token."""
        draft = self._draft
        if draft is None:
            return None
        return Round(draft, DraftVerified(draft.r, draft.ts, (), (), 0.0, 0, 0))

    def show(self, round_: Round | None) -> None:
        if round_ is not self._round:
            self._round = round_
            self.refresh()

    def show_phase(self, view: Round | DraftProposed | None) -> None:
        """Show a draft or an uncommitted round; None keeps the last finished round."""
        draft = view if isinstance(view, DraftProposed) else None
        if draft is not self._draft:
            self._draft = draft
            self.refresh()
        if isinstance(view, Round):
            self.show(view)


def as_pending(row: Content) -> Content:
    """Return a row of rejected tokens in the style of pending tokens."""
    signs = {span.start for span in row.spans if span.style == _REJECTED_SIGN_STYLE}
    plain = "".join(_PENDING_SIGN if i in signs else c for i, c in enumerate(row.plain))
    return Content.styled(plain, _PENDING)
