"""What the user says, and what waits to be said while the session cannot listen."""

from mlxspec_app.controllers.feed import Feed
from mlxspec_app.controllers.page import ChatPage
from mlxspec_app.conversation.screen_events import (
    MessageQueued,
    OrderGiven,
    QueuedSent,
    QueueEmptied,
)


class Outbox:
    """Sends messages one by one, each when the reply to the one before has ended."""

    def __init__(self, feed: Feed, page: ChatPage) -> None:
        """Begin with nothing to send."""
        self._feed, self._page = feed, page
        self._was_loading = True

    def submit(self, text: str) -> None:
        """Send a message now, or when the session can take it."""
        if self._feed.state.phase == "ready":
            self._send(text)
        else:
            self._feed.note(MessageQueued(text))

    def follow_phase(self) -> None:
        """Send what waits once the session is ready, unless what it followed went wrong."""
        state = self._feed.state
        was_loading, self._was_loading = self._was_loading, state.phase == "loading"
        if state.phase != "ready" or not state.queue:
            return
        reply = state.reply
        is_broken = reply is not None and (reply.reason == "cancelled" or bool(reply.error))
        if state.load_failure is not None or (is_broken and not was_loading):
            self.give_back()
            return
        text = state.queue[0]
        self._feed.note(QueuedSent())
        self._send(text)

    def give_back(self) -> None:
        """Give waiting messages back to be edited: what they followed is not what it was."""
        self._page.prompt.restore("\n".join(self._feed.state.queue))
        self._feed.note(QueueEmptied())

    def _send(self, text: str) -> None:
        self._feed.note(OrderGiven())  # until the session says so, no second message goes out
        self._feed.session.send(text)
        self._page.transcript.follow()
