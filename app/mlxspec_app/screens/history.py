"""The list of chats: search, open, rename, delete or copy one."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import ClassVar

from textual import getters, on, work
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Container
from textual.content import Content
from textual.widgets import Input, Static

from mlxspec_app.screens.steady import SteadyScreen
from mlxspec_app.settings.keys.tables import HISTORY, SEARCH
from mlxspec_app.store.errors import StoreError
from mlxspec_app.store.recorder import Recorder
from mlxspec_app.store.records import ChosenChat, Entry
from mlxspec_app.store.thread import StoreThread
from mlxspec_app.text.safe_text import safe_line
from mlxspec_app.widgets.chat.key_footer import KeyFooter
from mlxspec_app.widgets.chat_list import ChatList

NO_CHATS = "No chats yet: press n to start one."
PAUSE_S = 0.12  # pause after a key press, to avoid one search per letter


class TitleField(Input):
    """Reads another title for `entry`; hidden while that is None."""

    def __init__(self) -> None:
        super().__init__(compact=True)
        self.entry: Entry | None = None

    def ask(self, entry: Entry, row: int) -> None:
        """Show the field over a row of the list, with the present title."""
        self.entry, self.value = entry, entry.title
        self.offset = self.offset._replace(y=row)
        self.display = True
        self.focus()

    def hide(self) -> None:
        self.entry = None
        self.display = False


class HistoryScreen(SteadyScreen[ChosenChat | None]):
    """Shows the chats of the store, newest first, or the results of a search."""

    BINDINGS: ClassVar[list[BindingType]] = [*HISTORY, *SEARCH]
    AUTO_FOCUS = "ChatList"

    _chats = getters.query_one(ChatList)
    _title = getters.query_one(TitleField)
    _search = getters.query_one("#search", Input)

    def __init__(
        self,
        store: StoreThread,
        query: str = "",
        on_deleted: Callable[[int], None] = lambda n: None,
    ) -> None:
        """Search for `query` at once; `on_deleted` gets the number of each deleted chat."""
        super().__init__()
        self._store = store
        self._query = query
        self._entries: list[Entry] = []
        self._is_stale = True  # the entries are of an earlier query
        self._on_deleted = on_deleted
        self._deleted: list[Entry] = []

    def compose(self) -> ComposeResult:
        yield Input(self._query, placeholder="Search all chats …", id="search", compact=True)
        with Container(id="chats"):
            yield ChatList()
            yield Static(id="nothing")
            yield TitleField()
        yield KeyFooter()

    def on_mount(self) -> None:
        if self._query:
            self._search.focus()
        self._load()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action in ("rename", "delete", "fork"):
            return bool(self._entries)
        if action == "undelete":
            return bool(self._deleted)
        return True

    @work(exclusive=True, group="load")
    async def _load(self, pointed: int | None = None, pause_s: float = 0.0) -> None:
        await asyncio.sleep(pause_s)
        with self._explaining():
            await self._read(pointed)

    async def _read(self, pointed: int | None) -> None:
        query = self._query
        found = self._store.submit(
            lambda recorder: (
                recorder.writer.search(query) if query.strip() else recorder.writer.recent()
            )
        )
        self._entries = await asyncio.wrap_future(found)
        self._is_stale = False
        self._show(pointed)

    def _show(self, pointed: int | None) -> None:
        for chats in self.query(ChatList):  # none if the screen was closed while the store read
            chats.show(self._entries, pointed)
        nothing = "No chat contains these words." if self._query else NO_CHATS
        self._show_instead("" if self._entries else nothing)
        self.refresh_bindings()

    def _show_instead(self, text: str) -> None:
        """Show a text instead of an empty list; "" hides it."""
        for note in self.query("#nothing").results(Static):  # none if the screen was closed
            note.display = bool(text)
            note.update(Content(safe_line(text)))

    @contextmanager
    def _explaining(self) -> Iterator[None]:
        try:
            yield
        except StoreError as error:
            if self._entries:
                self.notify(str(error), severity="warning", timeout=4, markup=False)
            else:
                self._show_instead(f"The chats cannot be shown: {error}")

    @on(Input.Changed, "#search")
    def _search_for(self, event: Input.Changed) -> None:
        if event.value != self._query:
            self._query, self._is_stale = event.value, True
            self._load(0, PAUSE_S)

    @on(Input.Submitted, "#search")
    @work(exclusive=True, group="load")
    async def _open_found(self) -> None:
        with self._explaining():
            if self._is_stale:  # Enter came before the search started
                await self._read(0)
            self._chats.action_choose()

    @on(ChatList.Chosen)
    def _open(self, event: ChatList.Chosen) -> None:
        self.dismiss(ChosenChat(event.entry.chat, event.entry.message))

    def action_new(self) -> None:
        self.dismiss(ChosenChat(None))

    def action_move(self, step: int) -> None:
        self._chats.action_move(step)

    def action_search(self) -> None:
        self._search.focus()

    def action_back(self) -> None:
        if self._title.entry is not None:
            self._end_renaming()
        elif self._search.value:
            self._search.value = ""
            self._chats.focus()
        else:
            self.dismiss(None)

    def action_delete(self) -> None:
        entry = self._chats.entry
        if entry is not None:
            self._change(lambda recorder: recorder.delete(entry.chat))
            self._deleted.append(entry)
            self._on_deleted(entry.chat)
            said = f"{safe_line(entry.title)} · u restores it"
            self.notify(said, title="Deleted", timeout=4, markup=False)

    def action_undelete(self) -> None:
        if self._deleted:
            entry = self._deleted.pop()
            self._change(lambda recorder: recorder.writer.undelete(entry.chat))

    def action_fork(self) -> None:
        entry = self._chats.entry
        if entry is not None:
            self._change(lambda recorder: recorder.writer.fork_chat(entry.chat), 0)

    def action_rename(self) -> None:
        if self._chats.entry is not None and self._chats.row_in_view is not None:
            self._title.ask(self._chats.entry, self._chats.row_in_view)

    @on(Input.Submitted, "TitleField")
    def _rename(self, event: Input.Submitted) -> None:
        entry, title = self._title.entry, event.value.strip()
        if entry is not None and title:
            self._end_renaming()
            pointed = None if self._query else 0  # the renamed chat moves to the top
            self._change(lambda recorder: recorder.writer.rename(entry.chat, title), pointed)

    @on(ChatList.Moved)
    def _check_renaming(self) -> None:
        chats, field = self._chats, self._title
        is_there = chats.entry is field.entry and chats.row_in_view == field.offset.y
        if field.entry is not None and not is_there:
            self._end_renaming()

    def _end_renaming(self) -> None:
        self._title.hide()
        self._chats.focus()

    @work(group="change")
    async def _change(
        self, change: Callable[[Recorder], object], pointed: int | None = None
    ) -> None:
        with self._explaining():
            await asyncio.wrap_future(self._store.submit(change))
        self._load(pointed)
