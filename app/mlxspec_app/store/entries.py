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

ROWS_PER_ENTRY = 2
UNTITLED = "(no title)"
Piece = tuple[str, Literal["title", "note", "snippet", "match"]]
"""Characters and their style."""
_SEPARATOR = " · "
_TITLE_CELLS = 24  # notes are dropped until the title has this width, or all that it needs
_INDENT = "    "
_POINTED, _UNPOINTED = "\u276f ", "  "
_SPEAKERS = {"user": "you", "assistant": "reply"}


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


async def read_entries(store: "StoreThread", query: str) -> list[Entry]:
    """Return the messages that contain words, the best first, or all chats, the newest first.

    May raise `StoreError`.
    """
    if query.strip():
        hits = store.submit(lambda recorder: recorder.writer.search(query))
        return [
            Entry(h.chat, h.title, _notes(_SPEAKERS[h.role], h.created), h.snippet, h.message)
            for h in await asyncio.wrap_future(hits)
        ]
    chats = store.submit(lambda recorder: recorder.writer.recent())
    entries = []
    for chat in await asyncio.wrap_future(chats):
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
    return [(sign + title, "title"), (note, "note")]


def snippet_row(entry: Entry, width: int) -> list[Piece]:
    """Return the second row of an entry."""
    pieces: list[Piece] = [(_INDENT, "snippet")]
    left = width - len(_INDENT)
    for part in entry.snippet:
        text = safe_line(part.text)
        shown = text if cell_len(text) <= left else _cropped(text, left)
        pieces.append((shown, "match" if part.is_match else "snippet"))
        left -= cell_len(shown)
    return pieces


def _cropped(text: str, cells: int) -> str:
    """Return the text in exactly so many cells, with a sign if it is longer."""
    shown = Text(text)
    shown.truncate(max(0, cells), overflow="ellipsis", pad=True)
    return shown.plain
