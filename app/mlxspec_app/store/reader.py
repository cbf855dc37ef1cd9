"""Reads the store: the list of chats, a chat from its first message to its leaf, siblings.

The schema checks types only: a time may be outside every calendar, JSON may hold anything. Such a
value counts as missing.
"""

import json
import sqlite3
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from mlxspec_app.store.database import explain
from mlxspec_app.store.errors import GoneError, StoreError
from mlxspec_app.store.records import (
    Chat,
    Entry,
    Generation,
    Overview,
    StoredMessage,
)
from mlxspec_app.store.search_text import (
    MARK_END,
    MARK_START,
    SnippetPart,
    match_expression,
    snippet_parts,
)

SNIPPET_WORDS = 16
_SNIPPET_CHARACTERS = 120
_SPEAKERS = {"user": "you", "assistant": "reply"}
_LAST = 253_402_300_799.0  # the end of the year 9999, the last year of Python's dates

# One statement for text and pieces: between two, another process could move pieces to the text.
WHOLE_TEXT = """message.text || coalesce((SELECT group_concat(text, '') FROM (
    SELECT text FROM piece WHERE piece.message = message.id ORDER BY number
)), '')"""
_SUMMARIES = f"""
    SELECT chat.id, title, updated, coalesce(message.depth, 0),
           coalesce(substr({WHOLE_TEXT}, 1, 400), '')
    FROM chat LEFT JOIN message ON message.id = chat.leaf
    WHERE deleted IS NULL ORDER BY updated DESC, chat.id DESC LIMIT ?
"""
_MESSAGES = f"""
    SELECT message.id, chat, parent, role, state, {WHOLE_TEXT},
           (SELECT count(*) FROM message AS other WHERE other.chat = message.chat
            AND other.parent IS message.parent AND other.id <= message.id),
           (SELECT count(*) FROM message AS other WHERE other.chat = message.chat
            AND other.parent IS message.parent),
           target, drafter, settings, seed, stats, reason, error, trace
    FROM message LEFT JOIN generation ON generation.message = message.id
"""
_UPWARDS = """
    WITH RECURSIVE above (node) AS (
        SELECT ? UNION ALL
        SELECT parent FROM message JOIN above ON id = node WHERE parent IS NOT NULL
    )
"""
_SAID = f"""
    SELECT role, {WHOLE_TEXT} FROM message WHERE id IN (SELECT node FROM above) ORDER BY id
"""
# Order by rank alone and put the index in the outer loop: then FTS5 itself sorts, and it makes
# snippets for the returned rows only, not for every match.
_SEARCH = """
    SELECT chat.id, title, message.id, role, message.created, snippet(search, 0, ?, ?, '…', ?)
    FROM search CROSS JOIN message ON message.id = search.rowid
    CROSS JOIN chat ON chat.id = message.chat
    WHERE search MATCH ? AND deleted IS NULL ORDER BY search.rank LIMIT ?
"""


def stored_branches(store: Path, most_characters: int) -> list[list[tuple[str, str]]]:
    """Return `Reader.branches` of a store in which nothing is changed; [] if it cannot be read."""
    uri = f"{store.absolute().as_uri()}?mode=ro"
    with suppress(sqlite3.Error, StoreError), closing(sqlite3.connect(uri, uri=True)) as connection:
        return Reader(connection).branches(most_characters)
    return []


class Reader:
    """Queries to the store, for one thread; each may raise `StoreError`, `GoneError` among them."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def close(self) -> None:
        self._connection.close()

    def recent(self, limit: int = -1) -> list[Entry]:
        """Return the chats without deleted ones, the last changed first; -1 is for all of them."""
        entries = []
        for chat, title, updated, count, text in self._rows(_SUMMARIES, (limit,)):
            note = f"{count} message{'' if count == 1 else 's'}"
            snippet = SnippetPart(" ".join(text.split())[:_SNIPPET_CHARACTERS], is_match=False)
            entries.append(Entry(chat, title, _time(updated), note, (snippet,)))
        return entries

    def overview(self) -> Overview:
        """Return the number of chats without deleted ones, and the one that was changed last."""
        [(number,)] = self._rows("SELECT count(*) FROM chat WHERE deleted IS NULL")
        return Overview(number, next(iter(self.recent(1)), None))

    def chat(self, chat: int) -> Chat:
        """Return a chat, also a deleted one that is not purged yet."""
        rows = self._rows("SELECT title, system, leaf FROM chat WHERE id = ?", (chat,))
        if not rows:
            raise GoneError(f"chat {chat} is no longer in the store")
        return Chat(chat, *rows[0])

    def message(self, message: int) -> StoredMessage:
        found = self._messages("WHERE message.id = ?", (message,))
        if not found:
            raise GoneError(f"message {message} is no longer in the store")
        return found[0]

    def path(self, chat: int) -> list[StoredMessage]:
        """Return the current branch of a chat: from the first message to the leaf."""
        leaf = self.chat(chat).leaf
        return [] if leaf is None else self.path_to(leaf)

    def path_to(self, message: int) -> list[StoredMessage]:
        """Return the messages from the first of a chat to this one, on any branch."""
        where = "WHERE message.id IN (SELECT node FROM above) ORDER BY message.id"
        return self._messages(where, (message,), _UPWARDS)

    def recent_turns(self, limit: int = 200) -> list[str]:
        """Return the user's last messages of all chats that are not deleted, oldest first."""
        rows = self._rows(
            "SELECT text FROM message JOIN chat ON chat.id = message.chat "
            "WHERE role = 'user' AND deleted IS NULL ORDER BY message.id DESC LIMIT ?",
            (limit,),
        )
        return [text for (text,) in reversed(rows)]

    def siblings(self, message: int) -> list[StoredMessage]:
        """Return the messages with the same parent, oldest first, this one included."""
        this = self.message(message)
        where = "WHERE chat = ? AND parent IS ? ORDER BY message.id"
        return self._messages(where, (this.chat, this.parent))

    def search(self, query: str, limit: int = 50) -> list[Entry]:
        """Return the messages that contain every word of `query`, the best matches first.

        A word matches by its prefix, a phrase in quotation marks as a whole; case and accents are
        ignored. A reply is in the index once it has ended.
        """
        expression = match_expression(query)
        if not expression:
            return []
        values = (MARK_START, MARK_END, SNIPPET_WORDS, expression, limit)
        return [
            Entry(chat, title, _time(created), _SPEAKERS[role], snippet_parts(marked), message)
            for chat, title, message, role, created, marked in self._rows(_SEARCH, values)
        ]

    def branches(self, most_characters: int) -> list[list[tuple[str, str]]]:
        """Return role and text of the messages of each branch, also of replaced ones, oldest first.

        The newest branches of all chats that are not deleted are returned, while they have at most
        `most_characters` in all.
        """
        leaves = self._rows(
            "SELECT message.id, chat.system FROM message JOIN chat ON chat.id = message.chat "
            "WHERE deleted IS NULL AND NOT EXISTS (SELECT 1 FROM message AS next WHERE "
            "next.chat = message.chat AND next.parent = message.id) ORDER BY message.id DESC"
        )
        found, left = list[list[tuple[str, str]]](), most_characters
        for leaf, system in leaves:
            branch: list[tuple[str, str]] = [("system", system)] if system else []
            branch += self._rows(_UPWARDS + _SAID, (leaf,))
            left -= sum(len(text) for _, text in branch)
            if left < 0:
                break
            found.append(branch)
        return found[::-1]

    def _messages(
        self, where: str, values: tuple[Any, ...], before: str = ""
    ) -> list[StoredMessage]:
        """Return messages from rows of eight columns, then eight of their generations."""
        found = []
        for row in self._rows(before + _MESSAGES + where, values):
            message = StoredMessage(*row[:8])
            target, drafter, settings, seed, stats, *rest = row[8:]
            if target is not None:
                figures = _object(settings), _seed(seed), _object(stats)
                generation = Generation(target, drafter, *figures, *rest)
                message = replace(message, generation=generation)
            found.append(message)
        return found

    def _rows(self, sql: str, values: Sequence[Any] = ()) -> list[Any]:
        try:
            return self._connection.execute(sql, values).fetchall()
        except sqlite3.Error as error:
            raise explain(error) from error


def _time(seconds: float) -> float:
    return seconds if 0 <= seconds <= _LAST else 0.0


def _object(text: str) -> dict[str, Any]:
    with suppress(ValueError, RecursionError):
        content = json.loads(text)
        return content if isinstance(content, dict) else {}
    return {}


def _seed(text: str | None) -> int | None:
    with suppress(ValueError):
        return None if text is None else int(text)
    return None
