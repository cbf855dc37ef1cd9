"""Reads the store: the list of chats, a chat from its first message to its leaf, siblings."""

import sqlite3
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from mlxspec_app.store.columns import json_object, seed_of, time_of
from mlxspec_app.store.errors import GoneError, explain
from mlxspec_app.store.records import (
    Chat,
    ChatSummary,
    Generation,
    SearchHit,
    StoredMessage,
)
from mlxspec_app.store.search_text import MARK_END, MARK_START, match_expression, snippet_parts

SNIPPET_WORDS = 16
_SNIPPET_CHARACTERS = 120

# One statement for text and pieces: between two, another process could move pieces to the text.
WHOLE_TEXT = """message.text || coalesce((SELECT group_concat(text, '') FROM (
    SELECT text FROM piece WHERE piece.message = message.id ORDER BY number
)), '')"""
_SUMMARIES = f"""
    SELECT chat.id, title, updated, coalesce(message.depth, 0), substr({WHOLE_TEXT}, 1, 400)
    FROM chat LEFT JOIN message ON message.id = chat.leaf
    WHERE deleted IS NULL ORDER BY updated DESC, chat.id DESC LIMIT ? OFFSET ?
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
# Order by rank alone and put the index in the outer loop: then FTS5 itself sorts, and it makes
# snippets for the returned rows only, not for every match.
_SEARCH = """
    SELECT chat.id, title, message.id, role, message.created, snippet(search, 0, ?, ?, '…', ?)
    FROM search CROSS JOIN message ON message.id = search.rowid
    CROSS JOIN chat ON chat.id = message.chat
    WHERE search MATCH ? AND deleted IS NULL ORDER BY search.rank LIMIT ?
"""


class Reader:
    """Queries to the store, for one thread. Each method may raise `StoreError`.

    It raises `GoneError` if the chat or the message that it asks for is not in the store.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        """Read through a connection; `close` closes it."""
        self._connection = connection

    def close(self) -> None:
        self._connection.close()

    def recent(self, limit: int = 50, offset: int = 0) -> list[ChatSummary]:
        """Return the chats without deleted ones, the last changed first."""
        rows = self._rows(_SUMMARIES, (limit, offset))
        return [
            ChatSummary(chat, title, time_of(updated), count, _one_line(text or ""))
            for chat, title, updated, count, text in rows
        ]

    def count(self) -> int:
        """Return the number of chats, without deleted ones."""
        number: int = self._rows("SELECT count(*) FROM chat WHERE deleted IS NULL")[0][0]
        return number

    def chat(self, chat: int) -> Chat:
        """Return a chat; a deleted one too, until it is purged."""
        rows = self._rows("SELECT title, system, settings, leaf FROM chat WHERE id = ?", (chat,))
        if not rows:
            raise GoneError(f"chat {chat} is no longer in the store")
        title, system, settings, leaf = rows[0]
        return Chat(chat, title, system, json_object(settings), leaf)

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

    def search(self, query: str, limit: int = 50) -> list[SearchHit]:
        """Return the messages that contain every word of `query`, the best matches first.

        A word matches by its prefix, a phrase in quotation marks as a whole; case and accents are
        ignored. A reply is in the index once it has ended.
        """
        expression = match_expression(query)
        if not expression:
            return []
        values = (MARK_START, MARK_END, SNIPPET_WORDS, expression, limit)
        return [
            SearchHit(chat, title, message, role, time_of(created), snippet_parts(marked))
            for chat, title, message, role, created, marked in self._rows(_SEARCH, values)
        ]

    def _messages(
        self, where: str, values: tuple[Any, ...], before: str = ""
    ) -> list[StoredMessage]:
        return [_message(*row) for row in self._rows(before + _MESSAGES + where, values)]

    def _rows(self, sql: str, values: Sequence[Any] = ()) -> list[Any]:
        try:
            return self._connection.execute(sql, values).fetchall()
        except sqlite3.Error as error:
            raise explain(error) from error


def _message(*row: Any) -> StoredMessage:
    """Return a message from its row: eight columns, then eight of its generation."""
    message = StoredMessage(*row[:8])
    target, drafter, settings, seed, stats, *rest = row[8:]
    if target is None:
        return message
    figures = json_object(settings), seed_of(seed), json_object(stats)
    return replace(message, generation=Generation(target, drafter, *figures, *rest))


def _one_line(text: str) -> str:
    return " ".join(text.split())[:_SNIPPET_CHARACTERS]
