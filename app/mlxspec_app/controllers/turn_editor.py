"""Says a turn differently: the prompt holds it meanwhile, and what stood there comes back."""

from typing import NamedTuple

from mlxspec.trace.events import Event
from mlxspec_app.controllers.branches import place_at_hand
from mlxspec_app.controllers.feed import Feed
from mlxspec_app.controllers.outbox import Outbox
from mlxspec_app.controllers.page import ChatPage
from mlxspec_app.conversation.messages import said
from mlxspec_app.conversation.screen_events import OrderGiven
from mlxspec_app.conversation.session import ChatCleared, ChatOpened, SessionEvent


class _Edit(NamedTuple):
    """Which user turn is being edited, and what stood in the prompt before."""

    turn: int
    draft: str


class TurnEditor:
    """Edits one turn at a time."""

    def __init__(self, feed: Feed, page: ChatPage, outbox: Outbox) -> None:
        """Edit nothing yet.

        Args:
            feed: Holds the conversation.
            page: Shows it, and holds the text that is edited.
            outbox: Holds what would be said after it.
        """
        self._feed, self._page, self._outbox = feed, page, outbox
        self._edit: _Edit | None = None

    @property
    def is_editing(self) -> bool:
        """Whether the prompt holds a turn that was said before."""
        return self._edit is not None

    def take_in(self, event: Event | SessionEvent) -> None:
        if isinstance(event, ChatCleared | ChatOpened):
            self.end()

    def begin(self) -> None:
        """Offer the user turn at hand, else the last one above it, to be said differently."""
        at_hand = place_at_hand(self._feed, self._page)
        before = said(self._feed.state.messages)[: at_hand + 1]
        turns = [message.text for message in before if message.role == "user"]
        if not turns:
            return
        prompt = self._page.prompt
        draft = self._edit.draft if self._edit is not None else prompt.text
        self._edit = _Edit(len(turns) - 1, draft)
        prompt.fill(turns[-1])
        prompt.show_purpose(f"editing turn {len(turns)} · Enter sends, Esc keeps it as it was")
        prompt.focus()
        self._page.refresh_bindings()

    def end(self) -> bool:
        """Give the prompt back what it held before; return whether a turn was being edited."""
        edit, self._edit = self._edit, None
        if edit is None:
            return False
        self._page.prompt.fill(edit.draft)
        self._page.prompt.show_purpose("")
        self._page.refresh_bindings()
        return True

    def send(self, text: str) -> bool:
        """Say a turn differently, if one is being edited; return whether it was."""
        edit = self._edit
        if edit is None or not self.end():
            return False
        if self._feed.state.phase == "busy":
            self._outbox.give_back()
            self._feed.session.stop()
        self._feed.note(OrderGiven())
        self._feed.session.edit(edit.turn, text)
        self._page.transcript.follow()
        return True
