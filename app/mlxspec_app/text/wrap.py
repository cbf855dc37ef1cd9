"""Incremental soft wrap: new text is appended, and only the last row is wrapped again.

The wrap is greedy, and a row depends only on the text before its end, so any sequence of appends
gives the same rows as one wrap of the whole text. Rows break after spaces (which may stand past
the edge, invisible) and around wide characters. A word longer than a row is cut between grapheme
clusters, so no character is split.

Each appended piece has a tag, the number of its token, and `runs` returns the tags of a row. A
cluster that two pieces share has the tag of the later one.
"""

import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from rich.cells import cell_len, get_character_cell_size, split_graphemes

_Kind = Literal["space", "word", "wide"]
"""Spaces may stand past the edge, words move to the next row, wide characters break anywhere."""

_ROWS_BEFORE_A_CUT = 2
_ASCII_CHUNK = re.compile(r" +|[^ ]+")


class Row(NamedTuple):
    """One row on the screen: the characters `start` to `end` of a logical line."""

    line: int
    start: int
    end: int


class _Place(NamedTuple):
    """Coordinates of a character: logical line, and index in the line."""

    line: int
    character: int


class Run(NamedTuple):
    """Neighbouring characters of a row with the same tag."""

    start: int
    end: int
    tag: int


@dataclass
class Line:
    """A logical line and the tags of its pieces.

    Attributes:
        text: The characters, without the line break.
        ends: End of each piece, ascending.
        tags: Tag of each piece.
    """

    text: str = ""
    ends: list[int] = field(default_factory=list)
    tags: list[int] = field(default_factory=list)

    def append(self, text: str, tag: int) -> None:
        if not text:
            return
        self.text += text
        self.ends.append(len(self.text))
        self.tags.append(tag)

    def cut(self, end: int) -> None:
        """Drop all after the first `end` characters, which must be the end of a piece."""
        num_pieces = bisect_right(self.ends, end)
        del self.ends[num_pieces:], self.tags[num_pieces:]
        self.text = self.text[:end]

    def tag_at(self, index: int) -> int:
        return self.tags[bisect_right(self.ends, index)]


class WrappedText:
    """Text of logical lines, wrapped to a width in cells.

    Attributes:
        width: Cells in a row.
        lines: The logical lines, at least one; the last one grows.
        rows: The rows of all lines, in order.
    """

    def __init__(self, width: int = 80) -> None:
        self.width = max(1, width)
        self.lines = [Line()]
        self.rows = [Row(0, 0, 0)]
        self._last_lines: list[int] = []  # for each piece: the line and the index of its end
        self._ends: list[int] = []

    def append(self, text: str, tag: int = 0) -> int:
        """Add text at the end and return the index of the first row that changed."""
        first = len(self.rows) - 1
        head, *rest = text.split("\n")
        self.lines[-1].append(head, tag)
        self._wrap_last(self.rows.pop().start)
        for part in rest:
            self.lines.append(Line())
            self.lines[-1].append(part, tag)
            self._wrap_last(0)
        self._last_lines.append(len(self.lines) - 1)
        self._ends.append(len(self.lines[-1].text))
        return first

    def cut(self, num_pieces: int) -> int:
        """Drop all but the first pieces and return the index of the first row that changed."""
        if num_pieces >= len(self._ends):
            return len(self.rows)
        line, end = self._start_of(num_pieces)
        del self._last_lines[num_pieces:], self._ends[num_pieces:], self.lines[line + 1 :]
        # a shorter word may fit into the row before it, and a cut word had at least two rows
        first = max(self.row_at(line, 0), self.row_at(line, end) - _ROWS_BEFORE_A_CUT)
        start = self.rows[first].start
        del self.rows[first:]
        self.lines[line].cut(end)
        self._wrap_last(start)
        return first

    def rows_of(self, piece: int) -> range:
        """Return the rows that contain characters of a piece."""
        first = self.row_at(*self._start_of(piece))
        last = self.row_at(*self._start_of(piece + 1))
        is_over = last > first and self.rows[last][:2] == self._start_of(piece + 1)
        return range(first, last if is_over else last + 1)

    def _start_of(self, piece: int) -> _Place:
        return _Place(self._last_lines[piece - 1], self._ends[piece - 1]) if piece else _Place(0, 0)

    def set_width(self, width: int) -> None:
        """Wrap everything again if the width differs."""
        width = max(1, width)
        if width == self.width:
            return
        self.width = width
        self.rows = []
        for number, line in enumerate(self.lines):
            self._wrap(number, line.text, 0)

    def row_at(self, line: int, character: int) -> int:
        """Return the index of the row of a character."""
        place = _Place(line, character)
        return bisect_right(self.rows, place, key=lambda row: _Place(row.line, row.start)) - 1

    def row_text(self, row: Row) -> str:
        return self.lines[row.line].text[row.start : row.end]

    def runs(self, row: Row) -> list[Run]:
        """Return the runs of equal tags in a row; they begin and end between grapheme clusters."""
        line = self.lines[row.line]
        runs: list[Run] = []
        for start, end in self._pieces(row):
            tag = line.tag_at(end - 1)
            if runs and runs[-1].tag == tag:
                runs[-1] = Run(runs[-1].start, end, tag)
            else:
                runs.append(Run(start, end, tag))
        return runs

    def _pieces(self, row: Row) -> Iterator[tuple[int, int]]:
        line, start = self.lines[row.line], row.start
        if not self.row_text(row).isascii():
            for first, last, _ in split_graphemes(self.row_text(row))[0]:
                yield row.start + first, row.start + last
            return
        piece = bisect_right(line.ends, start)
        while start < row.end:
            end = min(line.ends[piece], row.end)
            yield start, end
            start, piece = end, piece + 1

    def _wrap_last(self, start: int) -> None:
        self._wrap(len(self.lines) - 1, self.lines[-1].text, start)

    def _wrap(self, number: int, text: str, start: int) -> None:
        first = start
        for end in _breaks(text[first:], self.width):
            self.rows.append(Row(number, start, first + end))
            start = first + end
        self.rows.append(Row(number, start, len(text)))


def _breaks(text: str, width: int) -> Iterator[int]:
    """Yield the indices at which rows of `text` end, without the end of the last row."""
    row_start = column = 0
    for start, end, cells, kind in _chunks(text):
        if kind == "space" or column + cells <= width:
            column += cells
            continue
        if start > row_start:
            yield start
        row_start, column = start, cells
        if cells > width:
            *cuts, column = _cut(text[start:end], width)
            for cut in cuts:
                row_start = start + cut
                yield row_start


def _cut(word: str, width: int) -> list[int]:
    """Return the indices at which a word that begins a row is cut, then the cells of the rest."""
    cuts, column = [], 0
    for start, _, cells in split_graphemes(word)[0]:
        if column + cells > width and start:
            cuts.append(start)
            column = 0
        column += cells
    return [*cuts, column]


def _chunks(text: str) -> Iterator[tuple[int, int, int, _Kind]]:
    """Yield (start, end, cells, kind) of each unbreakable part of a text."""
    if text.isascii():
        for match in _ASCII_CHUNK.finditer(text):
            start, end = match.span()
            yield start, end, end - start, "space" if text[start] == " " else "word"
        return
    start = 0
    kind: _Kind | None = None
    for first, last, _ in split_graphemes(text)[0]:
        new_kind = _kind(text[first:last])
        if kind is not None and (new_kind != kind or kind == "wide"):
            yield start, first, cell_len(text[start:first]), kind
            start = first
        kind = new_kind
    if kind is not None:
        yield start, len(text), cell_len(text[start:]), kind


def _kind(cluster: str) -> _Kind:
    if cluster == " ":
        return "space"
    # by its first character: later ones join the cluster, but must not move text already wrapped
    return "wide" if get_character_cell_size(cluster[0]) > 1 else "word"
