"""Base classes of the views of a round, and of the views of a draft without its verdict."""

from textual.widget import Widget

from mlxspec.trace.events import DraftProposed
from mlxspec_app.conversation.rounds import Round


class RoundView(Widget):
    """Shows one finished round, or none."""

    ALLOW_SELECT = False

    def __init__(self) -> None:
        super().__init__()
        self._round: Round | None = None

    @property
    def shown(self) -> Round | None:
        return self._round

    def show(self, round_: Round | None) -> None:
        if round_ is not self._round:
            self._round = round_
            self.refresh()


class PhaseView(RoundView):
    """A view that can also show a draft before its verdict."""

    def __init__(self) -> None:
        super().__init__()
        self._draft: DraftProposed | None = None

    def show_phase(self, view: Round | DraftProposed | None) -> None:
        """Show a draft or an uncommitted round; None keeps the last finished round."""
        draft = view if isinstance(view, DraftProposed) else None
        if draft is not self._draft:
            self._draft = draft
            self.refresh()
        if isinstance(view, Round):
            self.show(view)
