"""Sends the messages of the user, and queues them while the session is busy."""

from mlxspec_app.controllers.feed import Feed
from mlxspec_app.controllers.page import ChatPage
from mlxspec_app.conversation.screen_events import (
    MessageQueued,
    OrderGiven,
    QueuedSent,
    QueueEmptied,
)


class Outbox:
    """Sends messages one by one, each after the reply to the one before has ended."""

    def __init__(self, feed: Feed, page: ChatPage) -> None:
        self._feed, self._page = feed, page
        self._was_loading = True

    def submit(self, text: str) -> None:
        """Send a message now if the session is ready, else queue it."""
        if self._feed.state.phase == "ready":
            self._send(text)
        else:
            self._feed.note(MessageQueued(text))

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
        text = state.queue[0]
        self._feed.note(QueuedSent())
        self._send(text)

    def return_to_prompt(self) -> None:
        """Move the queued messages back into the prompt: the turn before them has changed."""
        self._page.prompt.restore("\n".join(self._feed.state.queue))
        self._feed.note(QueueEmptied())

    def _send(self, text: str) -> None:
        self._feed.note(OrderGiven())  # the session reports its work late: block a second message
        self._feed.session.send(text)
        self._page.transcript.follow()
