"""A session and what is known about it: its news go to the state, and to whoever listens."""

from collections.abc import Callable
from typing import NamedTuple

from mlxspec.trace.events import Event
from mlxspec_app.conversation.fold import apply
from mlxspec_app.conversation.screen_events import ScreenEvent
from mlxspec_app.conversation.session import Session, SessionEvent
from mlxspec_app.conversation.state import ChatState

Listener = Callable[[Event | SessionEvent], None]


class News(NamedTuple):
    """What came of looking for news.

    Attributes:
        has_events: Whether anything happened.
        has_new_phase: Whether the session does something else now.
        has_new_page: Whether the conversation has begun, or is empty again.
        is_over: Whether nothing will happen before an order.
    """

    has_events: bool
    has_new_phase: bool
    has_new_page: bool
    is_over: bool


class Feed:
    """Folds what a session tells.

    Attributes:
        session: The session.
        state: What is known about it.
    """

    def __init__(self, session: Session) -> None:
        """Know nothing yet of a session that has not been started."""
        self.session = session
        self.state = ChatState()
        self._listeners: list[Listener] = []

    def listen(self, *listeners: Listener) -> None:
        """Have every event told, in this order, after the state has taken it in."""
        self._listeners += listeners

    def note(self, event: ScreenEvent) -> None:
        """Change the state as something done on the screen does."""
        apply(self.state, event)

    def take_news(self) -> News:
        """Take in what happened since the last call."""
        was_idle = not self.session.busy
        phase, was_empty = self.state.phase, self.state.is_empty
        events = self.session.drain()
        for event in events:
            apply(self.state, event)
            for listener in self._listeners:
                listener(event)
        return News(
            has_events=bool(events),
            has_new_phase=self.state.phase != phase,
            has_new_page=self.state.is_empty != was_empty,
            is_over=was_idle and not events and self.state.phase != "loading",
        )
