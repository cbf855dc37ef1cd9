"""The branches of a chat: write a reply again, fork, and switch to another version."""

from mlxspec_app.controllers.feed import Feed
from mlxspec_app.controllers.page import ChatPage
from mlxspec_app.controllers.sampling import SamplingSwitch
from mlxspec_app.controllers.storage import ChatStorage
from mlxspec_app.conversation.messages import Message, without_system
from mlxspec_app.conversation.screen_events import OrderGiven
from mlxspec_app.store.queries import find_version, fork_at


class Branches:
    """Makes and switches the branches of the chat on the screen."""

    def __init__(
        self, feed: Feed, page: ChatPage, storage: ChatStorage, sampling: SamplingSwitch
    ) -> None:
        """Make a controller that has done nothing yet.

        Args:
            feed: Holds the conversation.
            page: Shows it and its cursor.
            storage: Stores its branches.
            sampling: Sets another seed, for a different reply.
        """
        self._feed, self._page, self._storage, self._sampling = feed, page, storage, sampling

    def regenerate(self, seed: str = "") -> None:
        """Write another reply to the last message.

        Args:
            seed: The seed to set first; "same" keeps the present one, "new" draws one; "" draws one
                where chance has a part in the reply.

        Raises:
            CommandError: It cannot be a seed.
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
        """Continue in a copy of the chat, which ends at the selected message."""
        index = selected_index(self._feed, self._page)
        self._storage.open_found(lambda recorder: fork_at(recorder, index))
        self._page.prompt.focus()

    def step(self, step: int) -> None:
        """Switch the last message with several versions, up to the selected one.

        Args:
            step: 1 for the next version, -1 for the one before.
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
    """Return the index of the selected message, else of the last one, without system prompts."""
    messages: list[Message] = without_system(feed.state.messages)
    pointed = page.transcript.pointed_message
    return messages.index(pointed) if pointed in messages else len(messages) - 1
