"""What the views of a round have in common, and those of a draft that has no verdict yet."""

from textual.widget import Widget

from mlxspec.trace.events import DraftProposed
from mlxspec_app.conversation.rounds import Round


class RoundView(Widget):
    """Shows one finished round, or none."""

    ALLOW_SELECT = False

    def __init__(self) -> None:
        """Make an empty view."""
        super().__init__()
        self._round: Round | None = None

    @property
    def shown(self) -> Round | None:
        """The round on display."""
        return self._round

    def show(self, round_: Round | None) -> None:
        if round_ is not self._round:
            self._round = round_
            self.refresh()


class PhaseView(RoundView):
    """A view that can also show a draft before its verdict."""

    def __init__(self) -> None:
        """Make an empty view."""
        super().__init__()
        self._draft: DraftProposed | None = None

    def show_phase(self, view: Round | DraftProposed | None) -> None:
        """Show what is not committed yet; None leaves the last finished round."""
        draft = view if isinstance(view, DraftProposed) else None
        if draft is not self._draft:
            self._draft = draft
            self.refresh()
        if isinstance(view, Round):
            self.show(view)
