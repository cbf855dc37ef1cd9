"""The chats of the store: keeps the one on the screen, opens others, switches branches.

To open one, a running reply is stopped and stored; then the store returns the chat, which may have
that reply; then the session receives the conversation, and confirms with `ChatOpened`.
"""

import asyncio
import gc
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from mlxspec.trace.events import GenerationStarted, TurnStarted
from mlxspec_app.conversation.events import (
    AnyEvent,
    ChatCleared,
    ChatCut,
    ChatOpened,
    ReplyDiscarded,
)
from mlxspec_app.conversation.messages import Message, without_system
from mlxspec_app.conversation.orders import NewChat, OpenChat, Stop
from mlxspec_app.screens.chat.outbox import Outbox
from mlxspec_app.screens.conversation.feed import Feed
from mlxspec_app.screens.conversation.screen import ConversationScreen
from mlxspec_app.store.errors import GoneError, StoreError
from mlxspec_app.store.records import ChosenChat, Standing, StoredChat
from mlxspec_app.store.restore import restore
from mlxspec_app.user_data import UserData
from mlxspec_app.widgets.chat.prompt import Prompt
from mlxspec_app.widgets.chat.welcome import Welcome

if TYPE_CHECKING:
    from mlxspec_app.store.recorder import Recorder
    from mlxspec_app.store.thread import StoreThread

FindChat = Callable[["Recorder"], StoredChat | None]
T = TypeVar("T")
_MOVES = (TurnStarted, GenerationStarted, ReplyDiscarded, ChatCleared, ChatOpened, ChatCut)


class Chats:
    """Stores one conversation among others."""

    def __init__(
        self, feed: Feed, screen: ConversationScreen, outbox: Outbox, user_data: UserData | None
    ) -> None:
        self.standing = Standing()  # the store's last answer about this conversation
        self._feed, self._screen, self._outbox, self._user_data = feed, screen, outbox, user_data
        self._waiting: tuple[FindChat, int | None] | None = None  # until the running reply ends
        self._is_opening = False
        self._target: Message | None = None  # message to show once its chat is open

    @property
    def store(self) -> "StoreThread | None":
        return self._user_data.store if self._user_data is not None else None

    def begin(self, *, continues: bool) -> None:
        """Start the session; `continues` opens the last chat first."""
        if continues and self.store is not None:
            self._screen.run_beside(self._start_with_last)
        else:
            self._feed.session.start()
        if self.store is not None:
            self.refresh_standing()

    def handle(self, event: AnyEvent) -> None:
        if self._user_data is not None:
            self._user_data.record(event)
        if self.store is not None and isinstance(event, _MOVES):
            self.refresh_standing()
        if isinstance(event, ChatOpened):
            self._screen.call_after_refresh(self._show_opened)

    def follow_phase(self) -> None:
        """Open the chat that waited for the end of a reply."""
        if self._waiting is not None and self._feed.state.phase == "ready":
            self.open_found(*self._waiting)

    def open_found(self, find: FindChat, message: int | None = None) -> None:
        """Open the chat that `find` returns in the store's thread, once no reply is being written.

        `message` is the number of the message to show; None shows the end.
        """
        self._waiting = None
        self._outbox.return_to_prompt()
        if self._feed.state.phase == "busy" and not self._is_opening:
            self._waiting = (find, message)
            self._feed.send(Stop())
        else:  # exclusive: a second choice replaces the first
            open_it = partial(self._open, find, message)
            self._screen.run_beside(open_it, group="open", exclusive=True)

    def open_last(self) -> None:
        self.open_found(lambda recorder: recorder.find_last())

    # ---- what the user chooses --------------------------------------------------------------

    def begin_new(self) -> None:
        self._outbox.return_to_prompt()
        self._feed.send(Stop())
        self._feed.send(NewChat())

    def choose(self, words: str = "") -> None:
        """Show the stored chats that match `words`, and open the chosen one."""
        if self.store is None:
            self._screen.notify("no chats are kept in this session", timeout=4)
            return
        from mlxspec_app.screens.history import HistoryScreen  # late: it delays the first frame

        screen = HistoryScreen(self.store, words, on_deleted=self.leave_deleted)
        self._screen.app.push_screen(screen, self.follow_choice)

    def follow_choice(self, choice: ChosenChat | None) -> None:
        """Open the chat chosen from the list; None keeps the current one."""
        self.refresh_standing()  # the list may have renamed the current chat
        if choice is None:
            return
        if choice.chat is None:
            self.begin_new()
            return
        chat, message = choice.chat, choice.message
        if message is not None or chat != self.standing.chat:
            self.open_found(lambda recorder: recorder.writer.find_chat(chat, message), message)

    def leave_deleted(self, chat: int) -> None:
        """Start an empty chat if the deleted one is on the screen."""
        if chat == self.standing.chat:
            self.begin_new()

    def rename(self, title: str) -> None:
        def change(recorder: "Recorder") -> None:
            if recorder.chat is None:
                raise GoneError("this chat has no messages yet, so no title to change")
            recorder.writer.rename(recorder.chat, title)

        async def rename() -> None:
            await self.query_store(change)
            self.refresh_standing()

        self._screen.run_beside(rename)

    def fork(self) -> None:
        index = self._selected_index
        self.open_found(lambda recorder: recorder.fork_at(index))
        self._screen.query_one(Prompt).focus()

    def step(self, step: int) -> None:
        """Switch the last message that has versions, at or above the selected one."""
        indices = [index for index in self.standing.versions if index <= self._selected_index]
        if indices:
            self._switch(max(indices), step)

    def step_at(self, number: int, step: int) -> None:
        """Switch the message with this number to another version."""
        numbers = [message.number for message in without_system(self._feed.state.messages)]
        if number in numbers:
            self._switch(numbers.index(number), step)

    @property
    def _selected_index(self) -> int:
        return self._feed.index_of(self._screen.transcript.pointed_message)

    def _switch(self, index: int, step: int) -> None:
        version = self.standing.versions.get(index)
        if version is not None and 1 <= version.number + step <= version.count:
            self.open_found(lambda recorder: recorder.find_version(index, step))

    # ---- the store --------------------------------------------------------------------------

    def refresh_standing(self) -> None:
        """Ask the store again about this conversation and the others, and show the answer."""
        self._screen.run_beside(self._refresh_standing, group="standing", exclusive=True)

    async def query_store(
        self, query: "Callable[[Recorder], T]", *, is_quiet: bool = False
    ) -> T | None:
        """Call `query` in the store's thread; on an error show it, or be quiet, and return None."""
        if self.store is None:
            return None
        try:
            return await asyncio.wrap_future(self.store.submit(query))
        except StoreError as error:
            if not is_quiet:
                self._screen.notify(str(error), severity="warning", timeout=6)
            return None

    async def _refresh_standing(self) -> None:
        if not without_system(self._feed.state.messages):
            chats = await self.query_store(lambda it: it.writer.overview(), is_quiet=True)
            if chats is not None:
                self._screen.query_one(Welcome).show_chats(chats)
        found = await self.query_store(lambda recorder: recorder.standing(), is_quiet=True)
        self.standing = found or Standing()
        numbers = [message.number for message in without_system(self._feed.state.messages)]
        versions = self.standing.versions.items()
        self._screen.transcript.show_versions({numbers[index]: mark for index, mark in versions})
        self._screen.query_one(Prompt).show_chat(self.standing.title)

    async def _open(self, find: FindChat, message: int | None) -> None:
        state, is_open = self._feed.state, False
        phase = state.phase
        state.wait()  # a message sent from here on belongs to the new chat
        self._is_opening = True
        try:
            is_open = await self._load_into_session(find, message)
        finally:
            self._is_opening = False
            if not is_open and phase != "loading":
                if state.phase == "busy":
                    state.phase = phase
                self._screen.show_now()

    async def _start_with_last(self) -> None:
        try:
            await self._load_into_session(lambda recorder: recorder.find_last(), None)
        finally:
            self._feed.session.start()
        self._screen.show_now()

    async def _load_into_session(self, find: FindChat, message: int | None) -> bool:
        """Give the session a stored conversation; return whether one was found."""
        found = await self.query_store(find)
        if found is None or self._user_data is None:
            return False
        messages = await asyncio.to_thread(restore, found.path, self._user_data.paths.traces)
        numbers = [stored.id for stored in found.path]
        self._target = messages[numbers.index(message)] if message in numbers else None
        leaf = numbers[-1] if numbers else None
        self._feed.send(OpenChat(ChatOpened(messages, found.chat.system, found.chat.id, leaf)))
        return True

    def _show_opened(self) -> None:
        target, self._target = self._target, None
        if target is None:
            self._screen.transcript.follow()
        else:
            self._screen.transcript.show_message(target)
        gc.collect()  # the objects of the previous chat are garbage now
