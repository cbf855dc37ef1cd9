"""What the list of chats holds: the newest chats, a page at a time, or what words are found in."""

import asyncio
import time

from mlxspec_app.store.entries import Entry, entry_of, entry_of_hit
from mlxspec_app.store.thread import StoreThread

PAGE = 100  # chats that are read at once


class ChatPages:
    """Reads entries from the store; every method may raise `StoreError`.

    Attributes:
        query: Words to look for; "" for all chats.
        entries: What was read.
        is_whole: Whether there is no more to read.
        is_stale: Whether something else was read than is looked for now.
    """

    def __init__(self, store: StoreThread, query: str = "") -> None:
        """Prepare; nothing is read yet."""
        self.query = query
        self.entries: list[Entry] = []
        self.is_whole = False
        self.is_stale = True
        self._store = store
        self._num_wanted = PAGE

    def look_for(self, query: str) -> None:
        """Read something else from the next `read` on."""
        self.query, self._num_wanted, self.is_stale = query, PAGE, True

    async def read(self) -> None:
        """Read anew, as far as was read before."""
        if self.query.strip():
            await self._search()
        else:
            self.entries = await self._page(self._num_wanted, 0)
            self.is_whole = len(self.entries) < self._num_wanted
        self.is_stale = False

    async def read_on(self) -> None:
        """Read another page, if there is one; a chat that moved up meanwhile stays where it was."""
        if self.is_whole:
            return
        page = await self._page(PAGE, len(self.entries))
        known = {entry.chat for entry in self.entries}
        self.entries += [entry for entry in page if entry.chat not in known]
        self.is_whole = len(page) < PAGE
        self._num_wanted += PAGE

    async def _search(self) -> None:
        query = self.query
        found = self._store.ask(lambda recorder: recorder.writer.reader.search(query))
        hits = await asyncio.wrap_future(found)
        self.entries = [entry_of_hit(hit, time.time()) for hit in hits]
        self.is_whole = True

    async def _page(self, limit: int, offset: int) -> list[Entry]:
        found = self._store.ask(lambda recorder: recorder.writer.reader.recent(limit, offset))
        chats = await asyncio.wrap_future(found)
        return [entry_of(chat, time.time()) for chat in chats]
