"""A session and its state: orders go to the session, its events to the state and the listeners."""

from collections.abc import Callable
from typing import NamedTuple

from mlxspec_app.conversation.events import AnyEvent
from mlxspec_app.conversation.fold import apply, note_order
from mlxspec_app.conversation.messages import Message, without_system
from mlxspec_app.conversation.orders import Order
from mlxspec_app.conversation.state import ChatState
from mlxspec_app.sessions.session import Session

Listener = Callable[[AnyEvent], None]


class Changes(NamedTuple):
    """What changed since the last frame."""

    has_events: bool
    has_new_phase: bool
    has_new_page: bool  # another conversation, or it became empty, or no longer is
    is_over: bool  # no event will come before the next order


class Feed:
    """Folds the orders to a session, and its events, into a state."""

    def __init__(self, session: Session, on_order: Callable[[Order], None]) -> None:
        """`on_order` is called after each order that was sent."""
        self.session = session
        self.state = ChatState()
        self._on_order = on_order
        self._listeners: list[Listener] = []

    def listen(self, *listeners: Listener) -> None:
        """Send every event to these listeners, in this order, after the state has changed."""
        self._listeners += listeners

    def send(self, order: Order) -> None:
        note_order(self.state, order)
        self.session.send(order)
        self._on_order(order)

    def index_of(self, message: Message | None) -> int:
        """Return the index of a message, else of the last one; system prompts do not count."""
        messages = without_system(self.state.messages)
        return messages.index(message) if message in messages else len(messages) - 1

    def update(self) -> Changes:
        # read before the drain: a session that is idle now has queued all its events
        was_idle = not self.session.busy
        before, phase, was_empty = self.state, self.state.phase, self.state.is_empty
        news = self.session.drain()
        for item in news:
            if isinstance(item, ChatState):
                self.state = item
                continue
            apply(self.state, item)
            for listener in self._listeners:
                listener(item)
        return Changes(
            has_events=bool(news),
            has_new_phase=self.state.phase != phase,
            has_new_page=self.state is not before or self.state.is_empty != was_empty,
            is_over=was_idle and not news and self.state.phase != "loading",
        )
