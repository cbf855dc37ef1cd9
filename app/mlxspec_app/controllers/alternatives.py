"""Other tokens that the model could have written at a position, and branches from there."""

from collections.abc import Callable

from mlxspec.trace.events import Event
from mlxspec_app.controllers.feed import Feed
from mlxspec_app.conversation.messages import Reply
from mlxspec_app.conversation.screen_events import OrderGiven
from mlxspec_app.conversation.session import AlternativesFound, SessionEvent
from mlxspec_app.conversation.token_facts import TokenFacts


class Alternatives:
    """Requests the alternatives at one position at a time; drops late answers for other positions.

    A branch is another version of the reply: the same text up to the position, then another token.
    """

    def __init__(self, feed: Feed, show: Callable[[AlternativesFound], None]) -> None:
        """`show` is called with each answer."""
        self._feed, self._show = feed, show
        self._place: tuple[int, int] | None = None

    def look_away(self) -> None:
        """Forget the position, because the cursor moved."""
        self._place = None

    def ask(self, reply: Reply, facts: TokenFacts) -> None:
        """Request the alternatives at the position of a token."""
        messages = self._feed.state.messages
        before = messages[: messages.index(reply)]
        turn = sum(message.role == "user" for message in before) - 1
        self._place = turn, facts.index
        self._feed.note(OrderGiven())
        self._feed.session.find_alternatives(*self._place)

    def branch(self, token: int) -> bool:
        """Rewrite the reply from the position on with `token`; return whether that is possible.

        `token` must be one of the alternatives that were found.
        """
        if self._place is None:
            return False
        self._feed.note(OrderGiven())
        self._feed.session.branch(*self._place, token)
        return True

    def handle(self, event: Event | SessionEvent) -> None:
        if isinstance(event, AlternativesFound) and self._place == (event.turn, event.position):
            self._show(event)
