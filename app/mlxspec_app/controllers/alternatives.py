"""What else the model could have written in the place of a token, and branches from there."""

from collections.abc import Callable

from mlxspec.trace.events import Event
from mlxspec_app.controllers.feed import Feed
from mlxspec_app.conversation.messages import Reply
from mlxspec_app.conversation.screen_events import OrderGiven
from mlxspec_app.conversation.session import AlternativesFound, SessionEvent
from mlxspec_app.conversation.token_facts import TokenFacts


class Alternatives:
    """Asks for one place at a time; an answer for another place than the present one is dropped.

    A branch is another version of the reply: what stood before the place, and another token there.
    """

    def __init__(self, feed: Feed, show: Callable[[AlternativesFound], None]) -> None:
        """Ask nothing yet; `show` is called with the answer."""
        self._feed, self._show = feed, show
        self._place: tuple[int, int] | None = None

    def look_away(self) -> None:
        """Forget the place: the cursor has moved."""
        self._place = None

    def ask(self, reply: Reply, facts: TokenFacts) -> None:
        """Ask for the place of a token of a reply."""
        messages = self._feed.state.messages
        before = messages[: messages.index(reply)]
        turn = sum(message.role == "user" for message in before) - 1
        self._place = turn, facts.index
        self._feed.note(OrderGiven())
        self._feed.session.find_alternatives(*self._place)

    def branch(self, token: int) -> bool:
        """Write the reply again from the place on, with a token there; return whether there is one.

        Args:
            token: Token id, one of those that were found.
        """
        if self._place is None:
            return False
        self._feed.note(OrderGiven())
        self._feed.session.branch(*self._place, token)
        return True

    def handle(self, event: Event | SessionEvent) -> None:
        if isinstance(event, AlternativesFound) and self._place == (event.turn, event.position):
            self._show(event)
