"""Edits an earlier turn in the prompt; afterwards the previous text of the prompt returns."""

from typing import NamedTuple

from mlxspec.trace.events import Event
from mlxspec_app.controllers.branches import selected_index
from mlxspec_app.controllers.feed import Feed
from mlxspec_app.controllers.outbox import Outbox
from mlxspec_app.controllers.page import ChatPage
from mlxspec_app.conversation.messages import without_system
from mlxspec_app.conversation.screen_events import OrderGiven
from mlxspec_app.conversation.session import ChatCleared, ChatOpened, SessionEvent


class _Edit(NamedTuple):
    """An edit in progress.

    Attributes:
        turn: Index among the user turns.
        draft: Text of the prompt before the edit.
    """

    turn: int
    draft: str


class TurnEditor:
    """Edits one turn at a time."""

    def __init__(self, feed: Feed, page: ChatPage, outbox: Outbox) -> None:
        self._feed, self._page, self._outbox = feed, page, outbox
        self._edit: _Edit | None = None

    @property
    def is_editing(self) -> bool:
        return self._edit is not None

    def handle(self, event: Event | SessionEvent) -> None:
        if isinstance(event, ChatCleared | ChatOpened):
            self.end()

    def begin(self) -> None:
        """Put the selected user turn, else the last one above it, into the prompt."""
        selected = selected_index(self._feed, self._page)
        before = without_system(self._feed.state.messages)[: selected + 1]
        turns = [message.text for message in before if message.role == "user"]
        if not turns:
            return
        prompt = self._page.prompt
        # during an edit the prompt holds the edited text, not the user's draft
        draft = self._edit.draft if self._edit is not None else prompt.text
        self._edit = _Edit(len(turns) - 1, draft)
        prompt.fill(turns[-1])
        prompt.show_purpose(f"editing turn {len(turns)} · Enter sends, Esc cancels")
        prompt.focus()
        self._page.refresh_bindings()

    def end(self) -> bool:
        """End the edit and restore the prompt; return whether a turn was being edited."""
        edit, self._edit = self._edit, None
        if edit is None:
            return False
        self._page.prompt.fill(edit.draft)
        self._page.prompt.show_purpose("")
        self._page.refresh_bindings()
        return True

    def send(self, text: str) -> bool:
        """Send the text as the edited turn; return whether one was being edited."""
        edit = self._edit
        if edit is None or not self.end():
            return False
        if self._feed.state.phase == "busy":  # the running reply follows the old turn
            self._outbox.return_to_prompt()
            self._feed.session.stop()
        self._feed.note(OrderGiven())
        self._feed.session.edit(edit.turn, text)
        self._page.transcript.follow()
        return True
