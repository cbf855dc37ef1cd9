"""A conversation screen that makes room when the chat no longer fits the model's context."""

from mlxspec.trace.events import Event
from mlxspec_app.app_choices import choices_of
from mlxspec_app.conversation.fold import apply
from mlxspec_app.conversation.screen_events import OrderGiven
from mlxspec_app.conversation.session import ContextFull, Session, SessionEvent
from mlxspec_app.screens.context_full import ContextAnswer, ContextFullScreen
from mlxspec_app.screens.conversation import ConversationScreen
from mlxspec_app.sessions.context_keeper import ContextKeeper
from mlxspec_app.settings.file import Settings


class RoomScreen(ConversationScreen):
    """Does what the settings say about a full context, or asks."""

    def __init__(self, session: Session) -> None:
        """Make a screen for a session that has not been started."""
        super().__init__(session)
        self._keeper = ContextKeeper(session)

    def on_mount(self) -> None:
        self._keeper.drop_oldest(choices_of(self.app).settings.context_full == "drop")

    def follow_settings(self, before: Settings, settings: Settings) -> None:
        super().follow_settings(before, settings)
        if settings.context_full != before.context_full:
            self._keeper.drop_oldest(settings.context_full == "drop")

    def take_in(self, event: Event | SessionEvent) -> None:
        super().take_in(event)
        if isinstance(event, ContextFull):
            self.call_after_refresh(self._make_room)

    def after_order(self) -> None:
        """Show at once what an order to the session changed."""
        self.wake()
        self.tick()
        self.refresh_bindings()
        self.update_panels()

    def _make_room(self) -> None:
        ways = self._keeper.ways(self.state)
        wanted = choices_of(self.app).settings.context_full
        if wanted != "ask" and wanted in ways:
            self._take_way(ContextAnswer(wanted, is_for_good=False))
        elif ways:
            question = ContextFullScreen(ways, self.state.context_length)
            self.app.push_screen(question, self._take_way)

    def _take_way(self, answer: ContextAnswer | None) -> None:
        if answer is None:
            return
        apply(self.state, OrderGiven())
        self._keeper.take(answer.way, self.state)
        if answer.is_for_good:
            choices_of(self.app).change("context_full", answer.way)
        self.after_order()
