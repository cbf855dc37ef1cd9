"""Other tokens that the model could have written at a position, and branches from there."""

from mlxspec_app.conversation.events import AlternativesFound, AnyEvent
from mlxspec_app.conversation.messages import Reply
from mlxspec_app.conversation.orders import Branch, FindAlternatives
from mlxspec_app.screens.conversation.feed import Feed
from mlxspec_app.screens.conversation.screen import ConversationScreen
from mlxspec_app.widgets.chat.inspector import Inspector


class Alternatives:
    """Asks for the alternatives at one position at a time; drops late answers for others."""

    def __init__(self, feed: Feed, screen: ConversationScreen) -> None:
        self._feed, self._screen = feed, screen
        self._asked: tuple[int, int] | None = None  # turn and position

    def look_away(self) -> None:
        """Forget the position, because the cursor moved."""
        self._asked = None

    def act(self) -> None:
        """Ask for alternatives to the token under the cursor, branch, or unfold a message."""
        inspector = self._screen.query_one(Inspector)
        messages, reply = self._feed.state.messages, self._screen.transcript.pointed_message
        if inspector.facts is None or not isinstance(reply, Reply):
            self._screen.transcript.toggle_parts(reply)
            return
        if self._feed.state.phase == "busy":
            self._screen.notify("the model is busy: Esc stops it, then try again", timeout=4)
        elif inspector.chosen is None:
            before = messages[: messages.index(reply)]
            turn = sum(message.role == "user" for message in before) - 1
            self._asked = turn, inspector.facts.index
            inspector.show_alternatives(None, is_asked=True)
            self._feed.send(FindAlternatives(*self._asked))
        elif self._asked is not None:
            token = inspector.chosen.token
            inspector.show_alternatives(None, is_asked=True)
            self._feed.send(Branch(*self._asked, token))

    def handle(self, event: AnyEvent) -> None:
        if isinstance(event, AlternativesFound) and self._asked == (event.turn, event.position):
            self._screen.query_one(Inspector).show_alternatives(event)
