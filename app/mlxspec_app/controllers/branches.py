"""The branches of a chat: regenerate, fork, and switch between versions."""

from mlxspec_app.controllers.feed import Feed
from mlxspec_app.controllers.page import ChatPage
from mlxspec_app.controllers.sampling import SamplingSwitch
from mlxspec_app.controllers.storage import ChatStorage
from mlxspec_app.conversation.messages import Message, without_system
from mlxspec_app.conversation.screen_events import OrderGiven
from mlxspec_app.store.queries import find_version, fork_at


class Branches:
    """Makes and switches branches of the chat on the screen."""

    def __init__(
        self, feed: Feed, page: ChatPage, storage: ChatStorage, sampling: SamplingSwitch
    ) -> None:
        self._feed, self._page, self._storage, self._sampling = feed, page, storage, sampling

    def regenerate(self, seed: str = "") -> None:
        """Write another reply to the last message.

        `seed` is set first: "same" keeps the present seed, "new" draws one, "" draws one if
        sampling is random.

        Raises:
            CommandError: `seed` is not a valid seed.
        """
        if seed == "new":
            if not self._sampling.draw_seed():
                return
        elif not seed:
            self._sampling.vary()
        elif seed != "same":
            self._sampling.use_seed(seed)
        self._feed.note(OrderGiven())
        self._feed.session.regenerate()
        self._page.transcript.follow()
        self._page.after_order()

    def fork(self) -> None:
        """Continue in a copy of the chat that ends at the selected message."""
        index = selected_index(self._feed, self._page)
        self._storage.open_found(lambda recorder: fork_at(recorder, index))
        self._page.prompt.focus()

    def step(self, step: int) -> None:
        """Switch the last message that has versions, at or above the selected one.

        `step` is 1 for the next version and -1 for the previous one.
        """
        selected = selected_index(self._feed, self._page)
        indices = [index for index in self._storage.standing.versions if index <= selected]
        if indices:
            self._switch(max(indices), step)

    def step_at(self, number: int, step: int) -> None:
        """Switch the message with this number to another version."""
        numbers = [message.number for message in without_system(self._feed.state.messages)]
        if number in numbers:
            self._switch(numbers.index(number), step)

    def _switch(self, index: int, step: int) -> None:
        version = self._storage.standing.versions.get(index)
        if version is not None and 1 <= version.number + step <= version.count:
            self._storage.open_found(lambda recorder: find_version(recorder, index, step))


def selected_index(feed: Feed, page: ChatPage) -> int:
    """Return the index of the selected message, or of the last one, not counting system prompts."""
    messages: list[Message] = without_system(feed.state.messages)
    pointed = page.transcript.pointed_message
    return messages.index(pointed) if pointed in messages else len(messages) - 1
