"""The list of chats. It draws only the rows in view, so a thousand chats cost as much as ten.

An entry has two rows: the title with its age at the right, and below it the snippet.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual import events
from textual.binding import BindingType
from textual.geometry import Region, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from mlxspec_app.conversation.figures import Part, fitting
from mlxspec_app.settings.keys.tables import LIST
from mlxspec_app.store.records import Entry
from mlxspec_app.text.chat_labels import ago
from mlxspec_app.text.safe_text import safe_line

ROWS_PER_ENTRY = 2
_PREFIX = "chat-list--"
_UNTITLED = "(no title)"
_SEPARATOR = " · "
_TITLE_CELLS = 24  # notes are dropped until the title has this width, or all that it needs
_INDENT = "    "
_POINTED, _UNPOINTED = "\u276f ", "  "


class ChatList(ScrollView, can_focus=True):
    """A list of entries with a cursor."""

    BINDINGS: ClassVar[list[BindingType]] = list(LIST)
    COMPONENT_CLASSES: ClassVar[set[str]] = {
        f"{_PREFIX}{name}" for name in ("title", "note", "snippet", "match", "pointed")
    }

    @dataclass
    class Chosen(Message):
        """The user chose an entry to open."""

        entry: Entry

    class Moved(Message):
        """The cursor is on another entry, or the list has scrolled."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._entries: Sequence[Entry] = ()
        self._pointed = 0

    @property
    def entry(self) -> Entry | None:
        """The entry under the cursor, or None in an empty list."""
        return self._entries[self._pointed] if self._entries else None

    @property
    def row_in_view(self) -> int | None:
        """Row of the widget in which the entry under the cursor begins; None if out of view."""
        row = self._pointed * ROWS_PER_ENTRY - round(self.scroll_y)
        return row if self._entries and 0 <= row < self.size.height else None

    def show(self, entries: Sequence[Entry], pointed: int | None = None) -> None:
        """Show these entries; `pointed` is the index for the cursor, None keeps the present one."""
        self._entries = entries
        self.virtual_size = Size(0, len(entries) * ROWS_PER_ENTRY)
        self.point_at(self._pointed if pointed is None else pointed)
        self.refresh()

    def point_at(self, index: int) -> None:
        self._pointed = max(0, min(index, len(self._entries) - 1))
        row = self._pointed * ROWS_PER_ENTRY
        self.scroll_to_region(Region(0, row, 1, ROWS_PER_ENTRY), animate=False)
        self.refresh()
        self.post_message(self.Moved())

    def render_line(self, y: int) -> Strip:
        index, row = divmod(y + self.scroll_offset.y, ROWS_PER_ENTRY)
        width = self.scrollable_content_region.width
        if index >= len(self._entries):
            return Strip.blank(width, self.rich_style)
        entry, is_pointed = self._entries[index], index == self._pointed
        pieces = (
            _snippet_row(entry, width) if row else _title_row(entry, width, is_pointed=is_pointed)
        )
        over = self._style("pointed") if is_pointed else Style()
        segments = [Segment(text, self._style(style) + over) for text, style in pieces]
        return Strip(segments).adjust_cell_length(width, self.rich_style + over)

    def _style(self, name: str) -> Style:
        return self.get_component_rich_style(_PREFIX + name, partial=name == "pointed")

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        self.post_message(self.Moved())

    def on_click(self, event: events.Click) -> None:
        index = (event.y + self.scroll_offset.y) // ROWS_PER_ENTRY
        if index < len(self._entries):
            self.point_at(index)
            self.action_choose()

    def action_move(self, step: int) -> None:
        self.point_at(self._pointed + step)

    def action_page(self, direction: int) -> None:
        self.point_at(self._pointed + direction * max(1, self.size.height // ROWS_PER_ENTRY))

    def action_end(self, direction: int) -> None:
        self.point_at(0 if direction < 0 else len(self._entries) - 1)

    def action_choose(self) -> None:
        if self.entry is not None:
            self.post_message(self.Chosen(self.entry))


def _title_row(entry: Entry, width: int, *, is_pointed: bool) -> list[tuple[str, str]]:
    """Return the first row of an entry as characters and their style."""
    sign = _POINTED if is_pointed else _UNPOINTED
    width -= cell_len(sign)
    title = safe_line(entry.title).strip() or _UNTITLED
    free = width - min(cell_len(title), _TITLE_CELLS) - 2
    parts = Part(entry.note, 1), Part(ago(entry.changed, time.time()))
    notes = fitting(parts, free, len(_SEPARATOR)) if free > 0 else []
    note = f"  {_SEPARATOR.join(part.text for part in notes)}" if notes else ""
    if cell_len(note) > free + 2:
        note = ""
    title = _cropped(title, width - cell_len(note))
    return [(sign + title, "title"), (note, "note")]


def _snippet_row(entry: Entry, width: int) -> list[tuple[str, str]]:
    pieces: list[tuple[str, str]] = [(_INDENT, "snippet")]
    left = width - len(_INDENT)
    for part in entry.snippet:
        text = safe_line(part.text)
        shown = text if cell_len(text) <= left else _cropped(text, left)
        pieces.append((shown, "match" if part.is_match else "snippet"))
        left -= cell_len(shown)
    return pieces


def _cropped(text: str, cells: int) -> str:
    """Return the text in exactly this many cells, with a sign if it is longer."""
    shown = Text(text)
    shown.truncate(max(0, cells), overflow="ellipsis", pad=True)
    return shown.plain
