"""Entries of the list of chats: the newest chats, a page at a time, or the hits of a search."""

import asyncio
import time

from mlxspec_app.store.entries import Entry, entry_of, entry_of_hit
from mlxspec_app.store.thread import StoreThread

PAGE = 100  # chats in one read


class ChatPages:
    """Reads entries from the store; every method may raise `StoreError`.

    Attributes:
        query: Words to search for; "" for all chats.
        is_whole: Whether `entries` are complete.
        is_stale: Whether `entries` belong to an earlier query.
    """

    def __init__(self, store: StoreThread, query: str = "") -> None:
        self.query = query
        self.entries: list[Entry] = []
        self.is_whole = False
        self.is_stale = True
        self._store = store
        self._num_requested = PAGE

    def set_query(self, query: str) -> None:
        self.query, self._num_requested, self.is_stale = query, PAGE, True

    async def read(self) -> None:
        """Read as many pages as before again."""
        if self.query.strip():
            await self._search()
        else:
            self.entries = await self._page(self._num_requested, 0)
            self.is_whole = len(self.entries) < self._num_requested
        self.is_stale = False

    async def read_next(self) -> None:
        if self.is_whole:
            return
        page = await self._page(PAGE, len(self.entries))
        # A change moves a chat to the top and pushes the others into the next page: skip those.
        listed = {entry.chat for entry in self.entries}
        self.entries += [entry for entry in page if entry.chat not in listed]
        self.is_whole = len(page) < PAGE
        self._num_requested += PAGE

    async def _search(self) -> None:
        query = self.query
        answer = self._store.submit(lambda recorder: recorder.writer.reader.search(query))
        hits = await asyncio.wrap_future(answer)
        self.entries = [entry_of_hit(hit, time.time()) for hit in hits]
        self.is_whole = True

    async def _page(self, limit: int, offset: int) -> list[Entry]:
        answer = self._store.submit(lambda recorder: recorder.writer.reader.recent(limit, offset))
        chats = await asyncio.wrap_future(answer)
        return [entry_of(chat, time.time()) for chat in chats]
