"""Changes the store: chats, their trees of messages, and replies while they are written.

A message is never overwritten. An edit or another answer adds a sibling, and the leaf of the chat
gives the current branch. A deleted chat is hidden at once and removed when the session ends. Each
method is one transaction. It may raise `StoreError`, and `GoneError` if the chat or the message is
not in the store.
"""

import json
import sqlite3
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any

from mlxspec_app.store.database import transaction
from mlxspec_app.store.errors import GoneError
from mlxspec_app.store.reader import WHOLE_TEXT, Reader
from mlxspec_app.store.records import Generation, MessageState, Role, StoredChat, storable
from mlxspec_app.text.chat_labels import title_of

FORK_SIGN = " · fork"  # at the end of the title of a chat that started as a copy
UNDO_S = 24 * 3600.0  # how long a deleted chat stays if its own session could not purge it
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
_TRACES = "SELECT trace FROM generation JOIN message ON id = message WHERE chat = ?"
_FOLD = f"""
    UPDATE message SET text = {WHOLE_TEXT}
    WHERE id = ? AND EXISTS (SELECT 1 FROM piece WHERE piece.message = message.id)
"""


class Writer(Reader):
    """The one writer of a process."""

    def __init__(
        self, connection: sqlite3.Connection, clock: Callable[[], float] = time.time
    ) -> None:
        """`connection` is from `open_for_writing`; `clock` returns seconds since 1970."""
        super().__init__(connection)
        self._clock = clock
        self._deleted: set[int] = set()  # the chats that this session deleted

    def transaction(self) -> AbstractContextManager[None]:
        """Return a context in which several changes are one transaction."""
        return transaction(self._connection)

    # ---- chats ------------------------------------------------------------------------------

    def new_chat(self, title: str = "", system: str | None = None) -> int:
        """Add an empty chat; without a title, the first message gives it one."""
        now = self._now()
        prompt = None if system is None else storable(system)
        return self._add(
            "INSERT INTO chat (title, created, updated, system, settings) "
            "VALUES (?, ?, ?, ?, '{}')",
            (storable(title), now, now, prompt),
        )

    def rename(self, chat: int, title: str) -> None:
        """Set the title of a chat, stripped of white space."""
        self._set_in_chat(chat, "title = ?, updated = ?", storable(title.strip()), self._now())

    def set_system(self, chat: int, system: str | None) -> None:
        prompt = None if system is None else storable(system)
        self._set_in_chat(chat, "system = ?, updated = ?", prompt, self._now())

    def fork_chat(self, chat: int) -> int:
        """Copy the conversation of a chat to a new one and return its number."""
        leaf = self.chat(chat).leaf
        if leaf is None:
            raise GoneError("this chat has no messages: there is nothing to copy")
        return self.fork(leaf)

    def fork(self, message: int) -> int:
        """Copy the conversation up to a message to a new chat and return its number."""
        with self.transaction():
            source = self.chat(self.message(message).chat)
            title = source.title.removesuffix(FORK_SIGN) + FORK_SIGN
            chat = self.new_chat(title, source.system)
            parent: int | None = None
            for original in self.path_to(message):
                parent = self._add(_FORKED_MESSAGE, (chat, parent, original.text, original.id))
                self._run(_FORKED_GENERATION, (parent, original.id))
            self._set_in_chat(chat, "leaf = ?", parent)
        return chat

    def delete(self, chat: int) -> None:
        """Hide a chat; until `purge`, `undelete` restores it."""
        self._set_in_chat(chat, "deleted = ?", self._clock())
        self._deleted.add(chat)

    def questions(self, chat: int) -> list[str]:
        """Return the messages of the user in a chat, of all branches."""
        sql = "SELECT text FROM message WHERE chat = ? AND role = 'user'"
        return [text for (text,) in self._rows(sql, (chat,))]

    def undelete(self, chat: int) -> None:
        self._set_in_chat(chat, "deleted = NULL")
        self._deleted.discard(chat)

    def purge(self) -> list[str]:
        """Remove the chats that this session deleted, and those deleted more than a day ago.

        Returns the names of the traces to which no reply refers any more.
        """
        with self.transaction():
            oldest = self._clock() - UNDO_S
            stale = self._rows("SELECT id FROM chat WHERE deleted < ?", (oldest,))
            traces: set[str] = set()
            for chat in self._deleted | {number for (number,) in stale}:
                traces |= {trace for (trace,) in self._rows(_TRACES, (chat,)) if trace}
                self._run("DELETE FROM chat WHERE id = ? AND deleted IS NOT NULL", (chat,))
            # A fork refers to the traces of its original: only those without a reply may go.
            is_used = "SELECT 1 FROM generation WHERE trace = ? LIMIT 1"
            unused = sorted(trace for trace in traces if not self._rows(is_used, (trace,)))
        self._deleted.clear()
        return unused

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
            message = self._add(
                "INSERT INTO message (chat, parent, depth, role, state, text, created) VALUES (?, "
                "?, 1 + coalesce((SELECT depth FROM message WHERE id = ?), 0), ?, ?, ?, ?)",
                (chat, parent, parent, role, state, text, now),
            )
            self._run(
                "UPDATE chat SET leaf = ?, updated = ?, title = iif(title = '', ?, title), "
                "deleted = NULL WHERE id = ?",
                (message, now, title_of(text) if role == "user" else "", chat),
            )
        return message

    def find_chat(self, chat: int, message: int | None = None) -> StoredChat:
        """Return a chat; with `message`, switch to the branch of that message first."""
        path = self.path(chat)
        if message is not None and all(message != stored.id for stored in path):
            self.switch_to(message)
            path = self.path(chat)
        return StoredChat(self.chat(chat), tuple(path))

    def switch_to(self, message: int) -> int:
        """Switch the chat to the branch of a message; return the newest leaf below it."""
        with self.transaction():
            chat = self.message(message).chat
            # a child has a larger number, so the largest one has no child
            leaf: int = self._rows(_NEWEST_BELOW, (message, chat))[0][0]
            self._set_in_chat(chat, "leaf = ?", leaf)
        return leaf

    # ---- replies ----------------------------------------------------------------------------

    def begin_reply(self, chat: int, parent: int | None, generation: Generation) -> int:
        """Add an empty reply, `partial` until `finish_reply`, and make it the leaf."""
        with self.transaction():
            message = self.add_message(chat, parent, "assistant", "", "partial")
            self._run(
                "INSERT INTO generation VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    message,
                    storable(generation.target),
                    storable(generation.drafter),
                    _json(generation.settings),
                    # As text: a seed may exceed the 64 bits of SQLite's integers.
                    None if generation.seed is None else str(generation.seed),
                    _json(generation.stats),
                    generation.reason,
                    storable(generation.error),
                    generation.trace,
                ),
            )
        return message

    def set_trace(self, message: int, name: str) -> None:
        self._run("UPDATE generation SET trace = ? WHERE message = ?", (name, message))

    def extend_reply(self, message: int, text: str) -> None:
        """Append text to a reply; the text is safe however the process ends."""
        self._run(
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
            self._run("UPDATE message SET state = ? WHERE id = ?", (state, message))
            self._run(
                "UPDATE generation SET reason = ?, stats = ?, error = ? WHERE message = ?",
                (reason, _json(stats or {}), storable(error), message),
            )
            self._run(
                "UPDATE chat SET updated = ? WHERE id = (SELECT chat FROM message WHERE id = ?)",
                (self._now(), message),
            )

    def add_figures(self, message: int, figures: Mapping[str, Any]) -> None:
        """Add figures to a reply, which may have ended already."""
        self._run(
            "UPDATE generation SET stats = json_patch(stats, ?) WHERE message = ?",
            (_json(figures), message),
        )

    def fold_pieces(self) -> None:
        """Append the pieces of unfinished replies to their texts.

        A reply that another process is still writing is safe: its later pieces follow the text.
        """
        with self.transaction():
            for (message,) in self._rows("SELECT DISTINCT message FROM piece"):
                self._fold(message)

    # ---- parts ------------------------------------------------------------------------------

    def _run(self, sql: str, values: tuple[Any, ...]) -> sqlite3.Cursor:
        with self.transaction():
            return self._connection.execute(sql, values)

    def _add(self, sql: str, values: tuple[Any, ...]) -> int:
        number = self._run(sql, values).lastrowid
        assert number is not None
        return number

    def _set_in_chat(self, chat: int, assignments: str, *values: Any) -> None:
        sql = f"UPDATE chat SET {assignments} WHERE id = ?"
        if not self._run(sql, (*values, chat)).rowcount:
            raise GoneError(f"chat {chat} is no longer in the store")

    def _fold(self, message: int) -> None:
        self._run(_FOLD, (message,))
        self._run("DELETE FROM piece WHERE message = ?", (message,))

    def _now(self) -> float:
        """Return a time later than every change before it: the clock may be set back."""
        last: float = self._rows("SELECT coalesce(max(updated), 0) FROM chat")[0][0]
        return max(self._clock(), last + _STEP_S)


def _json(value: Mapping[str, Any]) -> str:
    """Return plain data as JSON; NaN and infinity, which JSON lacks, become null."""
    finite = json.loads(json.dumps(value), parse_constant=lambda name: None)
    return storable(json.dumps(finite, ensure_ascii=False, separators=(",", ":")))
