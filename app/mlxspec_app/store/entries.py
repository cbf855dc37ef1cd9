"""Entries of the list of chats, read from the store, and the text of their rows.

An entry is a chat, or a message that a search found. It has two rows: the title with its age at the
right, and below it the start of the last message or the words around the match.
"""

import asyncio
import time
from typing import TYPE_CHECKING, Literal, NamedTuple

from rich.cells import cell_len
from rich.text import Text

from mlxspec_app.conversation.figures import Part, fitting
from mlxspec_app.store.search_text import SnippetPart
from mlxspec_app.text.chat_labels import ago
from mlxspec_app.text.safe_text import safe_line

if TYPE_CHECKING:
    from mlxspec_app.store.thread import StoreThread

PAGE = 100  # chats in one read
ROWS_PER_ENTRY = 2
UNTITLED = "(no title)"
Style = Literal["title", "note", "snippet", "match"]
_SEPARATOR = " · "
_TITLE_CELLS = 24  # notes are dropped until the title has this width, or all that it needs
_INDENT = "    "
_POINTED, _UNPOINTED = "\u276f ", "  "
_SPEAKERS = {"user": "you", "assistant": "reply"}


class Piece(NamedTuple):
    """Characters of one style."""

    text: str
    style: Style


class Entry(NamedTuple):
    """A chat, or one of its messages that a search found: the number of that, else None.

    `notes` stand at the right end of the title's row, `snippet` below the title.
    """

    chat: int
    title: str
    notes: tuple[Part, ...]
    snippet: tuple[SnippetPart, ...] = ()
    message: int | None = None


class ChosenChat(NamedTuple):
    """The chat that the user chose, or None for a new one; the message to show, or None."""

    chat: int | None
    message: int | None = None


class ChatPages:
    """Reads entries: the newest chats, a page at a time, or hits; may raise `StoreError`."""

    def __init__(self, store: "StoreThread", query: str = "") -> None:
        self.entries: list[Entry] = []
        self.is_whole = False
        self._store = store
        self.set_query(query)

    def set_query(self, query: str) -> None:
        """Search for words; "" for all chats. The entries are stale until the next read."""
        self.query, self._num_requested, self.is_stale = query, PAGE, True

    async def read(self) -> None:
        """Read as many pages as before again."""
        if self.query.strip():
            self.entries, self.is_whole = await self._hits(self.query), True
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

    async def _hits(self, query: str) -> list[Entry]:
        answer = self._store.submit(lambda recorder: recorder.writer.search(query))
        return [
            Entry(
                hit.chat,
                hit.title,
                _notes(_SPEAKERS[hit.role], hit.created),
                hit.snippet,
                hit.message,
            )
            for hit in await asyncio.wrap_future(answer)
        ]

    async def _page(self, limit: int, offset: int) -> list[Entry]:
        answer = self._store.submit(lambda recorder: recorder.writer.recent(limit, offset))
        entries = []
        for chat in await asyncio.wrap_future(answer):
            messages = f"{chat.num_messages} message{'' if chat.num_messages == 1 else 's'}"
            snippet = (SnippetPart(chat.snippet, is_match=False),)
            entries.append(Entry(chat.id, chat.title, _notes(messages, chat.updated), snippet))
        return entries


def _notes(words: str, changed: float) -> tuple[Part, ...]:
    return Part(words, 1), Part(ago(changed, time.time()))


def title_row(entry: Entry, width: int, *, is_pointed: bool) -> list[Piece]:
    """Return the first row of an entry; it starts with a sign if the cursor is on the entry."""
    sign = _POINTED if is_pointed else _UNPOINTED
    width -= cell_len(sign)
    title = safe_line(entry.title).strip() or UNTITLED
    free = width - min(cell_len(title), _TITLE_CELLS) - 2
    notes = fitting(entry.notes, free, len(_SEPARATOR)) if free > 0 else []
    note = f"  {_SEPARATOR.join(part.text for part in notes)}" if notes else ""
    if cell_len(note) > free + 2:
        note = ""
    title = _cropped(title, width - cell_len(note))
    return [Piece(sign + title, "title"), Piece(note, "note")]


def snippet_row(entry: Entry, width: int) -> list[Piece]:
    """Return the second row of an entry."""
    pieces = [Piece(_INDENT, "snippet")]
    left = width - len(_INDENT)
    for part in entry.snippet:
        text = safe_line(part.text)
        shown = text if cell_len(text) <= left else _cropped(text, left)
        pieces.append(Piece(shown, "match" if part.is_match else "snippet"))
        left -= cell_len(shown)
    return pieces


def _cropped(text: str, cells: int) -> str:
    """Return the text in exactly so many cells, with a sign if it is longer."""
    shown = Text(text)
    shown.truncate(max(0, cells), overflow="ellipsis", pad=True)
    return shown.plain
