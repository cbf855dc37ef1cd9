"""What stands around a transcript: the state of the session, its last round, and its figures."""

from textual.screen import Screen
from textual.widgets import Static

from mlxspec_app.controllers.view import StatsChoice
from mlxspec_app.conversation.state import ChatState
from mlxspec_app.widgets.chat.notice_rows import NoticeRows
from mlxspec_app.widgets.chat.status_bar import StatusBar
from mlxspec_app.widgets.chat.transcript import Transcript
from mlxspec_app.widgets.chat.welcome import Welcome
from mlxspec_app.widgets.draft.draft_lane import DraftLane
from mlxspec_app.widgets.draft.tree_panel import TreePanel
from mlxspec_app.widgets.figures.stats_panel import StatsPanel


class Surroundings:
    """Shows a state on the widgets of a screen, the transcript left out.

    Attributes:
        stats: Whether the figures are shown.
    """

    def __init__(self, screen: Screen[None], follow_keys: str) -> None:
        """Show nothing yet.

        Args:
            screen: Has the widgets, once it is composed.
            follow_keys: How to follow the newest text again, in a few words.
        """
        self.stats = StatsChoice()
        self._screen, self._follow_keys = screen, follow_keys

    def show(self, state: ChatState) -> None:
        """Renew everything."""
        self.show_rows(state)
        stats, tree = self._screen.query_one(StatsPanel), self._screen.query_one(TreePanel)
        if stats.has_class("-shown"):
            stats.show(state.reply)
        if tree.has_class("-shown"):
            tree.show(state.last_round)

    def show_rows(self, state: ChatState) -> None:
        """Renew what is cheap to draw."""
        screen, transcript = self._screen, self._screen.query_one(Transcript)
        self.show_welcome(state)
        transcript.update_footers()
        screen.query_one(StatusBar).show(state)
        screen.query_one(NoticeRows).show(state)
        screen.query_one(DraftLane).show(state.last_round)
        self.show_unseen(transcript.unseen)

    def show_welcome(self, state: ChatState) -> None:
        """Show the first page instead of the transcript while nothing was said."""
        self._screen.set_class(state.is_empty, "-empty")
        if state.is_empty:
            self._screen.query_one(Welcome).show(state)

    def show_unseen(self, unseen: int) -> None:
        """Say how many tokens arrived below what is in view."""
        pill = self._screen.query_one("#pill", Static)
        pill.set_class(unseen > 0, "-shown")
        if unseen:
            pill.update(f" ↓ {unseen} new tokens · {self._follow_keys} ")

    def place_stats(self) -> None:
        """Show the figures, or hide them, as there is room and they are wanted."""
        is_shown = self.stats.is_shown(self._screen.size.width)
        self._screen.query_one(StatsPanel).set_class(is_shown, "-shown")
