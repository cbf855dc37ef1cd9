"""The part of the chat that keeps chats: it records what happens, and goes on with what was kept.

A kept chat is gone on with in three steps. A reply that is being written is stopped, and kept as
far as it came; then the store is asked, whose answer counts all of that; then the session is given
the conversation, and tells when it goes on with it.
"""

import asyncio
import gc
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from textual import work
from textual.content import Content

from mlxspec.trace.events import Event, GenerationStarted, TurnStarted
from mlxspec_app.conversation.fold import apply
from mlxspec_app.conversation.messages import Message, said
from mlxspec_app.conversation.screen_events import OrderGiven, OrderWithdrawn, QueueEmptied
from mlxspec_app.conversation.session import (
    ChatCleared,
    ChatCut,
    ChatOpened,
    ReplyDiscarded,
    Session,
    SessionEvent,
)
from mlxspec_app.screens.room import RoomScreen
from mlxspec_app.store.errors import StoreError
from mlxspec_app.store.questions import find_last, overview, standing
from mlxspec_app.store.records import Standing, StoredChat
from mlxspec_app.store.restore import recollect
from mlxspec_app.text.safe_text import safe_line
from mlxspec_app.user_data import Desk
from mlxspec_app.widgets.chat.prompt import Prompt
from mlxspec_app.widgets.chat.transcript import Transcript
from mlxspec_app.widgets.chat.welcome import Welcome

if TYPE_CHECKING:
    from mlxspec_app.store.recorder import Recorder
    from mlxspec_app.store.thread import StoreThread

FindChat = Callable[["Recorder"], StoredChat | None]
T = TypeVar("T")
_MOVES = (TurnStarted, GenerationStarted, ReplyDiscarded, ChatCleared, ChatOpened, ChatCut)


class KeepingScreen(RoomScreen):
    """A conversation that is kept, among others that were.

    Attributes:
        desk: Keeps what is said, if anything does.
        standing: What the store knew of the conversation when it was last asked.
    """

    def __init__(
        self, session: Session, desk: Desk | None = None, *, continues: bool = False
    ) -> None:
        """Make a screen for a session that has not been started.

        Args:
            session: The session.
            desk: Keeps what is said; None keeps nothing.
            continues: Whether to go on with the last chat.
        """
        super().__init__(session)
        self.desk = desk
        self.standing = Standing()
        self._continues = continues
        self._waiting: tuple[FindChat, int | None] | None = None  # for the end of a reply
        self._is_opening = False
        self._goal: Message | None = None  # to be shown once its chat is open

    @property
    def store(self) -> "StoreThread | None":
        """What keeps the chats, if anything does."""
        return self.desk.store if self.desk is not None else None

    def begin(self) -> None:
        if self.desk is not None and self.desk.keeps_chats and self.desk.store is None:
            self.desk.keep_chats_of(self.session, lambda: self.call_later(self.wake))
        if self._continues and self.store is not None:
            self._begin_with_last()
        else:
            super().begin()
        if self.store is not None:
            self.look_around()

    def take_in(self, event: Event | SessionEvent) -> None:
        super().take_in(event)
        if self.desk is not None:
            self.desk.take_in(event)
        if self.store is not None and isinstance(event, _MOVES):
            self.look_around()
        if isinstance(event, ChatOpened):
            self.call_after_refresh(self._arrive)

    def on_unmount(self) -> None:
        if self.desk is not None:
            self.desk.log.note(self.frame_clock.describe())

    def on_phase_changed(self) -> None:
        if self._waiting is not None and self.state.phase == "ready":
            self.go_on_with(*self._waiting)

    def go_on_with(self, find: FindChat, message: int | None = None) -> None:
        """Go on with what the store finds, once no reply is being written any more.

        Args:
            find: Asked in the thread of the store.
            message: Number of the message to show, or None for the end.
        """
        self._waiting = None
        self.unqueue()
        if self.state.phase == "busy" and not self._is_opening:
            self._waiting = (find, message)
            self.session.stop()
            self.after_order()
        else:
            self._open(find, message)

    async def ask(self, question: "Callable[[Recorder], T]", *, is_quiet: bool = False) -> T | None:
        """Return an answer of the store, or None after saying why there is none."""
        if self.store is None:
            return None
        try:
            return await asyncio.wrap_future(self.store.ask(question))
        except StoreError as error:
            if not is_quiet:
                self.notify(str(error), severity="warning", timeout=6, markup=False)
            return None

    def unqueue(self) -> None:
        """Give waiting messages back to be edited: what they followed is not what it was."""
        self.query_one(Prompt).restore("\n".join(self.state.queue))
        apply(self.state, QueueEmptied())

    @work(exclusive=True, group="standing")
    async def look_around(self) -> None:
        """Ask the store anew what it knows of this conversation, and of the others."""
        if not said(self.state.messages):
            chats = await self.ask(overview, is_quiet=True)
            if chats is not None:
                self.query_one(Welcome).show_chats(chats)
        self.standing = await self.ask(standing, is_quiet=True) or Standing()
        versions = self.standing.versions
        numbers = [message.number for message in said(self.state.messages)]
        marks = {numbers[place]: version for place, version in versions.items()}
        self.query_one(Transcript).show_versions(marks)
        self.query_one(Prompt).border_subtitle = Content(safe_line(self.standing.title))

    @work(exclusive=True, group="open")
    async def _open(self, find: FindChat, message: int | None) -> None:
        phase, is_open = self.state.phase, False
        apply(self.state, OrderGiven())  # what is typed from here on is meant for that chat
        self._is_opening = True
        try:
            is_open = await self._hand_over(find, message)
        finally:
            self._is_opening = False
            if not is_open and phase != "loading":
                apply(self.state, OrderWithdrawn(phase))
        self.after_order()

    @work
    async def _begin_with_last(self) -> None:
        try:
            await self._hand_over(find_last, None)
        finally:
            self.session.start()
        self.after_order()

    async def _hand_over(self, find: FindChat, message: int | None) -> bool:
        """Give the session a conversation of the store; return whether there was one."""
        found = await self.ask(find)
        if found is None or self.desk is None:
            return False
        messages = await asyncio.to_thread(recollect, found.path, self.desk.places.traces)
        numbers = [stored.id for stored in found.path]
        self._goal = messages[numbers.index(message)] if message in numbers else None
        leaf = numbers[-1] if numbers else None
        self.session.open_chat(ChatOpened(messages, found.chat.system, found.chat.id, leaf))
        return True

    def _arrive(self) -> None:
        goal, self._goal = self._goal, None
        if goal is None:
            self.query_one(Transcript).follow()
        else:
            self.query_one(Transcript).show_message(goal)
        gc.collect()  # the conversation before is gone
