"""Sends what the user writes: messages, in turn while the session is busy, and edited turns."""

from typing import NamedTuple

from mlxspec_app.conversation.events import AnyEvent, ChatCleared, ChatOpened
from mlxspec_app.conversation.messages import without_system
from mlxspec_app.conversation.orders import Edit, Say, Stop
from mlxspec_app.screens.conversation.feed import Feed
from mlxspec_app.screens.conversation.screen import ConversationScreen
from mlxspec_app.widgets.chat.prompt import Prompt


class _Edited(NamedTuple):
    """An edit in progress: the index of the user turn, and the text of the prompt before it."""

    turn: int
    draft: str


class Outbox:
    """Sends messages one by one, each after the reply to the one before has ended."""

    def __init__(self, feed: Feed, screen: ConversationScreen) -> None:
        self._feed, self._screen = feed, screen
        self._was_loading = True
        self._edited: _Edited | None = None

    @property
    def is_editing(self) -> bool:
        return self._edited is not None

    @property
    def _prompt(self) -> Prompt:
        return self._screen.query_one(Prompt)

    def handle(self, event: AnyEvent) -> None:
        if isinstance(event, ChatCleared | ChatOpened):
            self.end_edit()

    def submit(self, text: str) -> None:
        """Send a message now if the session is ready, else queue it."""
        if self._feed.state.phase == "ready":
            self._feed.send(Say(text))
        else:
            self._feed.state.queue.append(text)
            self._screen.show_now()

    def follow_phase(self) -> None:
        """Send the next queued message when the session is ready; after a failure return all."""
        state = self._feed.state
        was_loading, self._was_loading = self._was_loading, state.phase == "loading"
        if state.phase != "ready" or not state.queue:
            return
        reply = state.reply
        is_broken = reply is not None and (reply.reason == "cancelled" or bool(reply.error))
        if state.load_failure is not None or (is_broken and not was_loading):
            self.return_to_prompt()
            return
        self._feed.send(Say(state.queue.pop(0)))

    def return_to_prompt(self) -> None:
        """Move the queued messages back into the prompt: the turn before them has changed."""
        self._prompt.restore("\n".join(self._feed.state.queue))
        self._feed.state.queue.clear()

    def begin_edit(self) -> None:
        """Put the selected user turn, else the last one above it, into the prompt."""
        selected = self._feed.index_of(self._screen.transcript.pointed_message)
        before = without_system(self._feed.state.messages)[: selected + 1]
        turns = [message.text for message in before if message.role == "user"]
        if not turns:
            return
        prompt = self._prompt
        # during an edit the prompt holds the edited text, not the user's draft
        draft = self._edited.draft if self._edited is not None else prompt.text
        self._edited = _Edited(len(turns) - 1, draft)
        prompt.fill(turns[-1])
        prompt.show_purpose(f"editing turn {len(turns)} · Enter sends, Esc cancels")
        prompt.focus()
        self._screen.refresh_bindings()

    def end_edit(self) -> bool:
        """End the edit and restore the prompt; return whether a turn was being edited."""
        edited, self._edited = self._edited, None
        if edited is None:
            return False
        self._prompt.fill(edited.draft)
        self._prompt.show_purpose("")
        self._screen.refresh_bindings()
        return True

    def send_edited(self, text: str) -> bool:
        """Send the text as the edited turn; return whether one was being edited."""
        edited = self._edited
        if edited is None or not self.end_edit():
            return False
        if self._feed.state.phase == "busy":  # the running reply follows the old turn
            self.return_to_prompt()
            self._feed.send(Stop())
        self._feed.send(Edit(edited.turn, text))
        return True
