"""The panels around a transcript: status bar, notices, last round and statistics."""

from textual.screen import Screen
from textual.widgets import Static

from mlxspec_app.app import FEW_ROWS
from mlxspec_app.conversation.messages import Reply
from mlxspec_app.conversation.rounds import Round
from mlxspec_app.conversation.state import ChatState
from mlxspec_app.conversation.views import XRAY, Ink, View
from mlxspec_app.widgets.chat.inspector import Inspector
from mlxspec_app.widgets.chat.notice_rows import NoticeRows
from mlxspec_app.widgets.chat.status_bar import StatusBar
from mlxspec_app.widgets.chat.transcript import Transcript
from mlxspec_app.widgets.chat.welcome import Welcome
from mlxspec_app.widgets.draft.draft_lane import DraftLane
from mlxspec_app.widgets.draft.legend_strip import LegendStrip
from mlxspec_app.widgets.draft.tree_panel import TreePanel
from mlxspec_app.widgets.stats_panel import StatsPanel

_STATS_BY_DEFAULT_FROM_WIDTH = 140


def shows_stats(choice: bool | None, view: View, width: int) -> bool:
    """Return whether the user's `choice`, else view and width, show the statistics."""
    has_room = width >= _STATS_BY_DEFAULT_FROM_WIDTH and view is XRAY
    return has_room if choice is None else choice


class Panels:
    """Shows a state in the widgets around the transcript, those for which the terminal has room."""

    def __init__(self, screen: Screen[None], follow_keys: str) -> None:
        self._screen, self._follow_keys = screen, follow_keys
        self._view = XRAY
        self._stats: bool | None = None
        self._has_few_rows = False
        self._reply: Reply | None = None
        self._round: Round | None = None

    def set_view(self, view: View, ink: Ink) -> None:
        """Show what belongs to a view: the X-ray has a legend."""
        screen, lane = self._screen, self._screen.query_one(DraftLane)
        screen.set_class(view is XRAY, "-xray")
        lane.set_class(view is not XRAY, "-plain")
        lane.refresh()
        screen.query_one(StatusBar).view = self._view = view
        screen.query_one(LegendStrip).show(ink)
        screen.query_one(Inspector).set_view(view)
        self._place_stats()

    def look_at(self, reply: Reply | None, round_: Round | None) -> None:
        """Show a reply and a round of it in the panels; None for the newest ones."""
        self._reply, self._round = reply, round_

    def show(self, state: ChatState, *, charts: bool = True) -> None:
        """Redraw the panels; without `charts`, only those that are cheap."""
        screen, transcript = self._screen, self._screen.query_one(Transcript)
        self.show_welcome(state)
        transcript.update_footers()
        screen.query_one(StatusBar).show(state)
        screen.query_one(NoticeRows).show(state)
        screen.query_one(DraftLane).show(self._round or state.last_round)
        screen.set_class(state.reply is not None and not state.reply.is_finished, "-writing")
        self.show_unseen(transcript.unseen)
        stats, tree = screen.query_one(StatsPanel), screen.query_one(TreePanel)
        if charts and stats.has_class("-shown"):
            stats.show(self._reply or state.reply)
        if charts and tree.has_class("-shown"):
            tree.show(self._round or state.last_round)

    def show_welcome(self, state: ChatState) -> None:
        """Show the first page instead of the transcript while the chat is empty."""
        self._screen.set_class(state.is_empty, "-empty")
        if state.is_empty:
            self._screen.query_one(Welcome).show(state)

    def show_unseen(self, unseen: int) -> None:
        pill = self._screen.query_one("#pill", Static)
        pill.set_class(unseen > 0, "-shown")
        if unseen:
            pill.update(f" ↓ {unseen} new tokens · {self._follow_keys} ")

    def fit(self) -> None:
        self._place_stats()
        has_few, self._has_few_rows = self._has_few_rows, self._screen.size.height < FEW_ROWS
        if self._has_few_rows and not has_few:
            self._screen.notify(f"keys and drafts need {FEW_ROWS} rows", timeout=3)

    def toggle_stats(self) -> None:
        """Show or hide the statistics; the user's choice holds from now on."""
        self._stats = not shows_stats(self._stats, self._view, self._screen.size.width)
        self._place_stats()

    def _place_stats(self) -> None:
        is_shown = shows_stats(self._stats, self._view, self._screen.size.width)
        self._screen.query_one(StatsPanel).set_class(is_shown, "-shown")
