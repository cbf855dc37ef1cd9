"""Changes the store: chats, their trees of messages, and replies while they are written.

A message is never overwritten. An edit or another answer adds a sibling, and the leaf of the chat
gives the current branch. Each method is one transaction. It may raise `StoreError`, and
`GoneError` if the chat or the message is not in the store.
"""

import sqlite3
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any

from mlxspec_app.store.bin import Bin, check_found
from mlxspec_app.store.errors import GoneError
from mlxspec_app.store.reader import WHOLE_TEXT, Reader
from mlxspec_app.store.records import LOST_ENDING, Generation, MessageState, Role
from mlxspec_app.store.transaction import storable, to_json, transaction
from mlxspec_app.text.titles import title_of

_STEP_S = 0.001  # at least this time between two changes: the list sorts by it

_FORKED_MESSAGE = """
    INSERT INTO message (chat, parent, depth, role, state, text, created)
    SELECT ?, ?, depth, role, state, ?, created FROM message WHERE id = ?
"""
_FORKED_GENERATION = """
    INSERT INTO generation
    SELECT ?, target, drafter, settings, seed, stats, reason, error, trace
    FROM generation WHERE message = ?
"""
_NEWEST_BELOW = """
    WITH RECURSIVE below (node) AS (
        SELECT ? UNION ALL
        SELECT id FROM message JOIN below ON chat = ? AND parent = node
    )
    SELECT max(node) FROM below
"""


class Writer:
    """The one writer of a process.

    Attributes:
        reader: Reads through the same connection.
        bin: Deletes chats.
    """

    def __init__(
        self, connection: sqlite3.Connection, clock: Callable[[], float] = time.time
    ) -> None:
        """`connection` is from `open_for_writing`, and `close` closes it.

        `clock` returns seconds since 1970.
        """
        self.reader = Reader(connection)
        self.bin = Bin(connection, clock)
        self._connection = connection
        self._clock = clock

    def close(self) -> None:
        self._connection.close()

    def transaction(self) -> AbstractContextManager[None]:
        """Return a context in which several changes are one transaction."""
        return transaction(self._connection)

    # ---- chats ------------------------------------------------------------------------------

    def new_chat(
        self, title: str = "", system: str | None = None, settings: Mapping[str, Any] | None = None
    ) -> int:
        """Add an empty chat; without a title, the first message gives it one."""
        now = self._now()
        prompt = None if system is None else storable(system)
        with self.transaction():
            cursor = self._connection.execute(
                "INSERT INTO chat (title, created, updated, system, settings) "
                "VALUES (?, ?, ?, ?, ?)",
                (storable(title), now, now, prompt, to_json(settings or {})),
            )
        return _new_id(cursor)

    def rename(self, chat: int, title: str) -> None:
        """Set the title of a chat, stripped of white space."""
        self._set(chat, "title", storable(title.strip()))

    def set_system(self, chat: int, system: str | None) -> None:
        self._set(chat, "system", None if system is None else storable(system))

    def fork(self, message: int) -> int:
        """Copy the conversation up to a message to a new chat and return its number."""
        with self.transaction():
            source = self.reader.chat(self.reader.message(message).chat)
            chat = self.new_chat(source.title, source.system, source.settings)
            parent: int | None = None
            for original in self.reader.path_to(message):
                values = (chat, parent, original.text, original.id)
                parent = _new_id(self._connection.execute(_FORKED_MESSAGE, values))
                self._connection.execute(_FORKED_GENERATION, (parent, original.id))
            self._connection.execute("UPDATE chat SET leaf = ? WHERE id = ?", (parent, chat))
        return chat

    # ---- messages ---------------------------------------------------------------------------

    def add_message(
        self,
        chat: int,
        parent: int | None,
        role: Role,
        text: str,
        state: MessageState = "finished",
    ) -> int:
        """Add a message below `parent` (None for a first one), and make it the leaf.

        This restores a deleted chat: another window may have deleted the chat in use here.
        """
        text, now = storable(text), self._now()
        with self.transaction():
            depth = 1 if parent is None else self._depth(parent) + 1
            cursor = self._connection.execute(
                "INSERT INTO message (chat, parent, depth, role, state, text, created) "
                "VALUES (?, ?, ?, ?, ?, ?, ?)",
                (chat, parent, depth, role, state, text, now),
            )
            message = _new_id(cursor)
            title = title_of(text) if role == "user" else ""
            self._connection.execute(
                "UPDATE chat SET leaf = ?, updated = ?, title = iif(title = '', ?, title), "
                "deleted = NULL WHERE id = ?",
                (message, now, title, chat),
            )
        return message

    def edit(self, message: int, text: str) -> int:
        """Add a sibling with another text, make it the leaf and return its number."""
        with self.transaction():
            this = self.reader.message(message)
            return self.add_message(this.chat, this.parent, this.role, text)

    def switch_to(self, message: int) -> int:
        """Switch the chat to the branch of a message; return the newest leaf below it."""
        with self.transaction():
            chat = self.reader.message(message).chat
            row = self._connection.execute(_NEWEST_BELOW, (message, chat)).fetchone()
            leaf: int = row[0]  # a child has a larger number, so the largest one has no child
            self._connection.execute("UPDATE chat SET leaf = ? WHERE id = ?", (leaf, chat))
        return leaf

    # ---- replies ----------------------------------------------------------------------------

    def begin_reply(self, chat: int, parent: int | None, generation: Generation) -> int:
        """Add an empty reply, `partial` until `finish_reply`, and make it the leaf."""
        with self.transaction():
            message = self.add_message(chat, parent, "assistant", "", "partial")
            # As text: a seed may exceed the 64 bits of SQLite's integers.
            seed = None if generation.seed is None else str(generation.seed)
            self._connection.execute(
                "INSERT INTO generation VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    message,
                    storable(generation.target),
                    storable(generation.drafter),
                    to_json(generation.settings),
                    seed,
                    to_json(generation.stats),
                    generation.reason,
                    storable(generation.error),
                    generation.trace,
                ),
            )
        return message

    def set_trace(self, message: int, name: str) -> None:
        with self.transaction():
            self._connection.execute(
                "UPDATE generation SET trace = ? WHERE message = ?", (name, message)
            )

    def extend_reply(self, message: int, text: str) -> None:
        """Append text to a reply; the text is safe however the process ends."""
        with self.transaction():
            self._connection.execute(
                "INSERT INTO piece SELECT ?, coalesce(max(number), 0) + 1, ? "
                "FROM piece WHERE message = ?",
                (message, storable(text), message),
            )

    def finish_reply(
        self,
        message: int,
        state: MessageState,
        reason: str | None = None,
        stats: Mapping[str, Any] | None = None,
        error: str = "",
    ) -> None:
        with self.transaction():
            self._fold(message)
            self._connection.execute("UPDATE message SET state = ? WHERE id = ?", (state, message))
            self._connection.execute(
                "UPDATE generation SET reason = ?, stats = ?, error = ? WHERE message = ?",
                (reason, to_json(stats or {}), storable(error), message),
            )
            self._connection.execute(
                "UPDATE chat SET updated = ? WHERE id = (SELECT chat FROM message WHERE id = ?)",
                (self._now(), message),
            )

    def add_figures(self, message: int, figures: Mapping[str, Any]) -> None:
        """Add figures to a reply, which may have ended already.

        Raises:
            GoneError: The reply is no longer in the store.
        """
        with self.transaction():
            cursor = self._connection.execute(
                "UPDATE generation SET stats = json_patch(stats, ?) WHERE message = ?",
                (to_json(figures), message),
            )
            if not cursor.rowcount:
                raise GoneError(f"message {message} is no longer in the store")

    def fold_pieces(self) -> None:
        """Append the pieces of unfinished replies to their texts.

        A reply that another process is still writing is safe: its later pieces follow the text.
        """
        with self.transaction():
            rows = self._connection.execute("SELECT DISTINCT message FROM piece").fetchall()
            for row in rows:
                self._fold(row[0])

    def note_lost_endings(self) -> None:
        """Give replies without an end a reason, so that the user is notified of them only once."""
        with self.transaction():
            self._connection.execute(
                "UPDATE generation SET reason = ? WHERE reason IS NULL "
                "AND message IN (SELECT id FROM message WHERE state = 'partial')",
                (LOST_ENDING,),
            )

    # ---- parts ------------------------------------------------------------------------------

    def _fold(self, message: int) -> None:
        self._connection.execute(
            f"UPDATE message SET text = {WHOLE_TEXT} "
            "WHERE id = ? AND EXISTS (SELECT 1 FROM piece WHERE piece.message = message.id)",
            (message,),
        )
        self._connection.execute("DELETE FROM piece WHERE message = ?", (message,))

    def _set(self, chat: int, column: str, value: str | None) -> None:
        with self.transaction():
            cursor = self._connection.execute(
                f"UPDATE chat SET {column} = ?, updated = ? WHERE id = ?",
                (value, self._now(), chat),
            )
            check_found(cursor, chat)

    def _now(self) -> float:
        """Return a time later than every change before it: the clock may be set back."""
        row = self._connection.execute("SELECT max(updated) FROM chat").fetchone()
        last: float = row[0] or 0.0
        return max(self._clock(), last + _STEP_S)

    def _depth(self, message: int) -> int:
        row = self._connection.execute(
            "SELECT depth FROM message WHERE id = ?", (message,)
        ).fetchone()
        if row is None:
            raise GoneError(f"message {message} is no longer in the store")
        depth: int = row[0]
        return depth


def _new_id(cursor: sqlite3.Cursor) -> int:
    assert cursor.lastrowid is not None
    return cursor.lastrowid
