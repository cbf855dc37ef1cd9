"""What the chat and the replay have in common: one session, one state, and the views of it.

A frame drains the session, folds what happened into the state and appends new text to the
transcript; now and then it renews everything around it. Nothing here waits for the session.
"""

from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.widgets import Static

from mlxspec.trace.events import Event
from mlxspec_app.app_choices import choices_of
from mlxspec_app.conversation.fold import apply
from mlxspec_app.conversation.inks import ink_named
from mlxspec_app.conversation.session import Session, SessionEvent
from mlxspec_app.conversation.state import ChatState
from mlxspec_app.frame_rate import frames_per_s
from mlxspec_app.screens.context import ContextScreen
from mlxspec_app.screens.help import HelpScreen, Key
from mlxspec_app.screens.pacing import PacingScreen
from mlxspec_app.settings.file import Settings
from mlxspec_app.widgets.chat.inspector import Inspector
from mlxspec_app.widgets.chat.key_footer import KeyFooter
from mlxspec_app.widgets.chat.notice_rows import NoticeRows
from mlxspec_app.widgets.chat.status_bar import StatusBar
from mlxspec_app.widgets.chat.transcript import Transcript
from mlxspec_app.widgets.chat.welcome import Welcome
from mlxspec_app.widgets.draft.draft_lane import DraftLane
from mlxspec_app.widgets.draft.tree_panel import TreePanel
from mlxspec_app.widgets.figures.stats_panel import StatsPanel


class ConversationScreen(PacingScreen):
    """Shows a session. Subclasses add what stands below the draft lane, and their keys."""

    NOTE: ClassVar[str] = ""

    def __init__(self, session: Session) -> None:
        """Make a screen for a session that has not been started."""
        super().__init__()
        self.session = session
        self.state = ChatState()

    def compose(self) -> ComposeResult:
        yield StatusBar(self.NOTE)
        with Horizontal(id="body"):
            with Vertical(id="conversation"):
                yield self.make_welcome()
                yield Transcript(id="transcript")
                yield Static(id="pill")
            yield StatsPanel()
        yield Inspector()
        yield self.make_tree()
        yield self.make_lane()
        yield NoticeRows(can_adjust=hasattr(self, "action_adjust"))
        yield from self.compose_controls()
        yield KeyFooter()

    def compose_controls(self) -> ComposeResult:
        """Yield the widgets below the draft lane."""
        yield from ()

    def make_welcome(self) -> Welcome:
        """Return the page shown until there is a message."""
        return Welcome()

    def make_tree(self) -> TreePanel:
        """Return the view of the last draft tree."""
        return TreePanel()

    def make_lane(self) -> DraftLane:
        """Return the view of the last round."""
        return DraftLane()

    def active_keys(self) -> list[Key]:
        """Return the keys of the screen, for the help page."""
        return []

    def on_mount(self) -> None:
        settings = choices_of(self.app).settings
        self.use_ink(ink_named(settings.ink))
        self.begin()
        self.draw_at(frames_per_s(settings))
        self.begin_panels()
        self.update_views()

    def follow_settings(self, before: Settings, settings: Settings) -> None:
        """Show what is different now."""
        if settings.ink != before.ink:
            self.use_ink(ink_named(settings.ink))
        if settings.frame_rate != before.frame_rate:
            self.draw_at(frames_per_s(settings))

    @property
    def is_at_work(self) -> bool:
        return self.session.busy

    def begin(self) -> None:
        """Start the session; called once, when the widgets are there."""
        self.session.start()

    def tick(self) -> None:
        """Take in what happened since the last frame and show it."""
        was_idle = not self.session.busy
        news = self.session.drain()
        phase, was_empty = self.state.phase, self.state.is_empty
        for event in news:
            self.take_in(event)
        if news:
            self.query_one(Transcript).sync(self.state.messages)
        if self.state.phase != phase:
            self.on_phase_changed()
        if self.state.phase != phase or was_empty != self.state.is_empty:
            self.refresh_bindings()
            self.update_views()
        if was_idle and not news and self.state.phase != "loading":
            self.rest()

    def take_in(self, event: Event | SessionEvent) -> None:
        """Change the state as an event says."""
        apply(self.state, event)

    def on_phase_changed(self) -> None:
        """Act on a new phase of the session."""

    def update_views(self) -> None:
        """Show the state everywhere at once."""
        empty = self.state.is_empty
        self.set_class(empty, "-empty")
        if empty:
            self.query_one(Welcome).show(self.state)
        self.query_one(Transcript).sync(self.state.messages)
        self.update_panels()

    def update_panels(self) -> None:
        """Renew what stands around the transcript."""
        if not self.is_current:
            return
        self.update_rows()
        stats, tree = self.query_one(StatsPanel), self.query_one(TreePanel)
        if stats.has_class("-shown"):
            stats.show(self.state.reply)
        if tree.has_class("-shown"):
            tree.show(self.state.last_round)

    def update_rows(self) -> None:
        if not self.is_current:
            return
        transcript = self.query_one(Transcript)
        self.set_class(self.state.is_empty, "-empty")
        if self.state.is_empty:
            self.query_one(Welcome).show(self.state)
        transcript.update_footers()
        self.query_one(StatusBar).show(self.state)
        self.query_one(NoticeRows).show(self.state)
        self.query_one(DraftLane).show(self.state.last_round)
        self.show_unseen(transcript.unseen)

    @on(Transcript.Pointed)
    def _inspect(self, event: Transcript.Pointed) -> None:
        self.query_one(Inspector).show(event.facts)

    def action_context(self) -> None:
        self.app.push_screen(ContextScreen(self.state))

    def action_help(self) -> None:
        self.app.push_screen(HelpScreen(self.active_keys(), self.known_commands()))

    def action_copy_or_quit(self) -> None:
        text = self.selected_text()
        if text:
            self.copy(text, "")
        else:
            self.app.exit()

    def selected_text(self) -> str:
        return self.get_selected_text() or ""
