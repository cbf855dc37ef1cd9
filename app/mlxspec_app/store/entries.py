"""Rows of the list of chats: the text of each entry, cut to a width.

An entry is a chat, or a message that a search found. It has two rows: the title with its age at the
right, and below it the start of the last message or the words around the match.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

from rich.cells import cell_len, set_cell_size

from mlxspec_app.conversation.figures import Part, fitting
from mlxspec_app.store.records import ChatSummary, SearchHit
from mlxspec_app.store.search_text import SnippetPart
from mlxspec_app.text.ages import ago
from mlxspec_app.text.safe_text import safe_line

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


@dataclass(frozen=True)
class Entry:
    """A chat, or one of its messages that a search found.

    Attributes:
        notes: Text at the right end of the title's row.
        snippet: Text below the title.
        message: Number of the message that was found, or None.
    """

    chat: int
    title: str
    notes: tuple[Part, ...]
    snippet: tuple[SnippetPart, ...] = ()
    message: int | None = None


@dataclass(frozen=True)
class ChosenChat:
    """The chat that the user chose.

    Attributes:
        chat: None for a new one.
        message: Number of the message to show, or None for the end.
    """

    chat: int | None
    message: int | None = None


def entry_of(chat: ChatSummary, now: float) -> Entry:
    """Return the entry of a chat; `now` is in seconds since 1970."""
    messages = f"{chat.num_messages} message{'' if chat.num_messages == 1 else 's'}"
    notes = (Part(messages, 1), Part(ago(chat.updated, now)))
    return Entry(chat.id, chat.title, notes, (SnippetPart(chat.snippet, is_match=False),))


def entry_of_hit(hit: SearchHit, now: float) -> Entry:
    """Return the entry of a search hit; `now` is in seconds since 1970."""
    notes = (Part(_SPEAKERS[hit.role], 1), Part(ago(hit.created, now)))
    return Entry(hit.chat, hit.title, notes, hit.snippet, hit.message)


def title_row(entry: Entry, width: int, *, is_pointed: bool) -> list[Piece]:
    """Return the first row of an entry; it starts with a sign if the cursor is on the entry."""
    sign = Piece(_POINTED if is_pointed else _UNPOINTED, "title")
    width -= cell_len(sign.text)
    title = safe_line(entry.title).strip() or UNTITLED
    free = width - min(cell_len(title), _TITLE_CELLS) - 2
    notes = fitting(entry.notes, free, len(_SEPARATOR)) if free > 0 else []
    note = _SEPARATOR.join(part.text for part in notes)
    if cell_len(note) > free:
        note = ""
    cells = width - (cell_len(note) + 2 if note else 0)
    return [
        sign,
        Piece(_cropped(title, cells), "title"),
        Piece(f"  {note}" if note else "", "note"),
    ]


def snippet_row(entry: Entry, width: int) -> list[Piece]:
    """Return the second row of an entry."""
    pieces = [Piece(_INDENT, "snippet")]
    left = width - len(_INDENT)
    for part in entry.snippet:
        text = safe_line(part.text)
        pieces.append(Piece(_within(text, left), "match" if part.is_match else "snippet"))
        left -= cell_len(pieces[-1].text)
    return [*pieces, Piece(" " * left, "snippet")]


def _within(text: str, cells: int) -> str:
    """Return the text cut to at most `cells` cells, with a sign if text is missing."""
    return text if cell_len(text) <= cells else _cropped(text, cells)


def _cropped(text: str, cells: int) -> str:
    if cell_len(text) <= cells:
        return set_cell_size(text, cells)
    return set_cell_size(text, cells - 1) + "…" if cells > 0 else ""
