"""Deletes chats in two steps: hides them at once, and removes them when the session ends."""

import sqlite3
from collections.abc import Callable

from mlxspec_app.store.errors import GoneError
from mlxspec_app.store.transaction import transaction

UNDO_S = 24 * 3600.0  # how long a deleted chat stays if its own session could not purge it


class Bin:
    """The chats that one session deleted."""

    def __init__(self, connection: sqlite3.Connection, clock: Callable[[], float]) -> None:
        """`connection` is from `open_for_writing`; `clock` returns seconds since 1970."""
        self._connection = connection
        self._clock = clock
        self._chats: set[int] = set()

    def delete(self, chat: int) -> None:
        """Hide a chat; until `purge`, `undelete` restores it."""
        self._mark(chat, self._clock())
        self._chats.add(chat)

    def undelete(self, chat: int) -> None:
        self._mark(chat, None)
        self._chats.discard(chat)

    def purge(self) -> list[str]:
        """Remove the chats that this session deleted, and those deleted more than a day ago.

        Returns the names of the traces to which no reply refers any more.
        """
        with transaction(self._connection):
            stale = self._connection.execute(
                "SELECT id FROM chat WHERE deleted < ?", (self._clock() - UNDO_S,)
            )
            chats = self._chats | {row[0] for row in stale.fetchall()}
            traces = {trace for chat in chats for trace in self._traces_of(chat)}
            self._connection.executemany(
                "DELETE FROM chat WHERE id = ? AND deleted IS NOT NULL",
                [(chat,) for chat in chats],
            )
            # A fork refers to the traces of its original: only those without a reply may go.
            unused = sorted(trace for trace in traces if not self._is_used(trace))
        self._chats.clear()
        return unused

    def _mark(self, chat: int, when: float | None) -> None:
        with transaction(self._connection):
            cursor = self._connection.execute(
                "UPDATE chat SET deleted = ? WHERE id = ?", (when, chat)
            )
            check_found(cursor, chat)

    def _traces_of(self, chat: int) -> list[str]:
        rows = self._connection.execute(
            "SELECT trace FROM generation JOIN message ON id = message WHERE chat = ?", (chat,)
        )
        return [row[0] for row in rows if row[0]]

    def _is_used(self, trace: str) -> bool:
        found = self._connection.execute(
            "SELECT 1 FROM generation WHERE trace = ? LIMIT 1", (trace,)
        )
        return found.fetchone() is not None


def check_found(cursor: sqlite3.Cursor, chat: int) -> None:
    """Check that an UPDATE found the row of a chat.

    Raises:
        GoneError: It found no row.
    """
    if not cursor.rowcount:
        raise GoneError(f"chat {chat} is no longer in the store")
