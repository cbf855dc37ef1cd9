"""Goes another way from a message: writes a reply again, forks, and shows another version."""

from mlxspec_app.controllers.feed import Feed
from mlxspec_app.controllers.keeper import ChatKeeper
from mlxspec_app.controllers.page import ChatPage
from mlxspec_app.controllers.sampling import SamplingDesk
from mlxspec_app.conversation.messages import Message, said
from mlxspec_app.conversation.screen_events import OrderGiven
from mlxspec_app.store.questions import find_version, fork_at


class Branches:
    """Knows the branches of the chat on the screen."""

    def __init__(
        self, feed: Feed, page: ChatPage, keeper: ChatKeeper, sampling: SamplingDesk
    ) -> None:
        """Branch nothing yet.

        Args:
            feed: Holds the conversation.
            page: Shows it, and what is pointed at in it.
            keeper: Keeps its branches.
            sampling: Draws another seed where a reply is to be another one.
        """
        self._feed, self._page, self._keeper, self._sampling = feed, page, keeper, sampling

    def regenerate(self, seed: str = "") -> None:
        """Write the last reply again, "new" with another seed."""
        if seed == "new" and not self._sampling.draw_seed():
            return
        self._feed.note(OrderGiven())
        self._feed.session.regenerate()
        self._page.transcript.follow()
        self._page.after_order()

    def fork(self) -> None:
        """Go on in a copy of the chat, up to the message at hand."""
        place = place_at_hand(self._feed, self._page)
        self._keeper.go_on_with(lambda recorder: fork_at(recorder, place))
        self._page.prompt.focus()

    def step(self, step: int) -> None:
        """Switch the nearest message above that has several versions to another one."""
        at_hand = place_at_hand(self._feed, self._page)
        places = [place for place in self._keeper.standing.versions if place <= at_hand]
        if places:
            self._switch(max(places), step)

    def step_at(self, number: int, step: int) -> None:
        """Switch the message of a number to another version."""
        numbers = [message.number for message in said(self._feed.state.messages)]
        if number in numbers:
            self._switch(numbers.index(number), step)

    def _switch(self, place: int, step: int) -> None:
        version = self._keeper.standing.versions.get(place)
        if version is not None and 1 <= version.number + step <= version.count:
            self._keeper.go_on_with(lambda recorder: find_version(recorder, place, step))


def place_at_hand(feed: Feed, page: ChatPage) -> int:
    """Return the place of the message that is pointed at, else of the last one."""
    messages: list[Message] = said(feed.state.messages)
    pointed = page.transcript.pointed_message
    return messages.index(pointed) if pointed in messages else len(messages) - 1
