"""Incremental soft wrap: new text is appended, and only the last row is wrapped again.

The wrap is greedy, and a row depends only on the text before its end, so any sequence of appends
gives the same rows as one wrap of the whole text. Rows break after spaces (which may stand past
the edge, invisible) and around wide characters. A word longer than a row is cut between grapheme
clusters, so no character is split.

Each appended piece has a tag, the number of its token, and `runs` returns the tags of a row.
"""

import re
from bisect import bisect_right
from collections.abc import Iterator
from typing import Literal, NamedTuple

from rich.cells import cell_len, get_character_cell_size, split_graphemes

from mlxspec_app.text.tagged_lines import Line, Place, Run, TaggedLines

_Kind = Literal["space", "word", "wide"]
"""Spaces may stand past the edge, words move to the next row, wide characters break anywhere."""

_ROWS_BEFORE_A_CUT = 2
_ASCII_CHUNK = re.compile(r" +|[^ ]+")


class Row(NamedTuple):
    """One row on the screen: the characters `start` to `end` of a logical line."""

    line: int
    start: int
    end: int


class WrappedText:
    """Text of logical lines, wrapped to rows of `width` cells."""

    def __init__(self, width: int = 80) -> None:
        self.width = max(1, width)
        self.rows = [Row(0, 0, 0)]
        self._text = TaggedLines()

    @property
    def lines(self) -> list[Line]:
        """The logical lines, at least one; the last one grows."""
        return self._text.lines

    def append(self, text: str, tag: int = 0) -> int:
        """Add text at the end and return the index of the first row that changed."""
        first, line = len(self.rows) - 1, len(self.lines) - 1
        self._text.append(text, tag)
        self._wrap(line, self.lines[line].text, self.rows.pop().start)
        for number in range(line + 1, len(self.lines)):
            self._wrap(number, self.lines[number].text, 0)
        return first

    def cut(self, num_pieces: int) -> int:
        """Drop all but the first pieces and return the index of the first row that changed."""
        if num_pieces >= self._text.num_pieces:
            return len(self.rows)
        line, end = self._text.start_of(num_pieces)
        # a shorter word may fit into the row before it, and a cut word had at least two rows
        first = max(self.row_at(line, 0), self.row_at(line, end) - _ROWS_BEFORE_A_CUT)
        start = self.rows[first].start
        del self.rows[first:]
        self._text.cut(num_pieces)
        self._wrap(line, self.lines[line].text, start)
        return first

    def rows_of(self, piece: int) -> range:
        """Return the rows that contain characters of a piece."""
        first = self.row_at(*self._text.start_of(piece))
        last = self.row_at(*self._text.start_of(piece + 1))
        is_over = last > first and self.rows[last][:2] == self._text.start_of(piece + 1)
        return range(first, last if is_over else last + 1)

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
        place = Place(line, character)
        return bisect_right(self.rows, place, key=lambda row: Place(row.line, row.start)) - 1

    def row_text(self, row: Row) -> str:
        return self.lines[row.line].text[row.start : row.end]

    def runs(self, row: Row) -> list[Run]:
        """Return the runs of equal tags in a row; they start and end between grapheme clusters."""
        return self.lines[row.line].runs(row.start, row.end)

    def _wrap(self, number: int, text: str, start: int) -> None:
        first = start
        for end in breaks(text[first:], self.width):
            self.rows.append(Row(number, start, first + end))
            start = first + end
        self.rows.append(Row(number, start, len(text)))


def breaks(text: str, width: int) -> Iterator[int]:
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
    """Return the indices at which a word that starts a row is cut, then the cells of the rest."""
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
