"""Starts a new chat, opens one from the list, and renames the current one."""

from functools import partial
from typing import TYPE_CHECKING

from mlxspec_app.controllers.feed import Feed
from mlxspec_app.controllers.outbox import Outbox
from mlxspec_app.controllers.page import ChatPage
from mlxspec_app.controllers.storage import ChatStorage
from mlxspec_app.store.entries import ChosenChat
from mlxspec_app.store.errors import GoneError
from mlxspec_app.store.queries import find_chat

if TYPE_CHECKING:
    from mlxspec_app.store.recorder import Recorder


class ChatSwitch:
    """Puts another chat on the screen."""

    def __init__(self, feed: Feed, page: ChatPage, outbox: Outbox, storage: ChatStorage) -> None:
        self._feed, self._page, self._outbox, self._storage = feed, page, outbox, storage

    def begin_new(self) -> None:
        self._outbox.return_to_prompt()
        self._feed.session.stop()
        self._feed.session.new_chat()
        self._page.after_order()

    def follow_choice(self, choice: ChosenChat | None) -> None:
        """Open the chosen chat; None keeps the current one."""
        self._storage.refresh_standing()  # the list may have renamed the current chat
        if choice is None:
            return
        if choice.chat is None:
            self.begin_new()
            return
        chat, message = choice.chat, choice.message
        if message is not None or chat != self._storage.standing.chat:
            self._storage.open_found(lambda recorder: find_chat(recorder, chat, message), message)

    def leave_deleted(self, chat: int) -> None:
        """Start an empty chat if the deleted one is on the screen."""
        if chat == self._storage.standing.chat:
            self.begin_new()

    def rename(self, title: str) -> None:
        self._page.run_beside(partial(self._rename, title))

    async def _rename(self, title: str) -> None:
        def rename(recorder: "Recorder") -> None:
            if recorder.chat is None:
                raise GoneError("this chat has no messages yet, so no title to change")
            recorder.writer.rename(recorder.chat, title)

        await self._storage.query_store(rename)
        self._storage.refresh_standing()
