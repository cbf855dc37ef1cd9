"""The text on the screen: pieces with a tone, in lines that wrap into rows.

Each piece records which characters of the source it shows. So its token, a selection and a copy
refer to the exact text, although the marks of Markdown are not shown. Signs that the app adds, such
as the frame of a table, show no character of the source.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Flag, auto
from itertools import accumulate, zip_longest
from typing import Literal, NamedTuple

from rich.cells import cell_len

from mlxspec_app.text.wrap import breaks

Align = Literal["left", "center", "right"]
_LEAST_CELLS = 8
_LEAST_COLUMN = 6  # cells; no column is cut below this


class Tone(Flag):
    """How characters stand out from the text around them."""

    PLAIN = 0
    LOUD = auto()
    QUIET = auto()
    ITALIC = auto()
    STRIKE = auto()
    CODE = auto()
    SIGN = auto()
    """The app draws it, so it has an ASCII equivalent."""


class Piece(NamedTuple):
    """Adjacent characters with one tone."""

    text: str
    line: int = -1  # their logical line in the source; -1 for a sign of the app
    start: int = 0  # index in that line of the first character
    tone: Tone = Tone.PLAIN

    def part(self, first: int, last: int) -> "Piece":
        start = self.start + first if self.line >= 0 else 0
        return self._replace(text=self.text[first:last], start=start)


Cell = tuple[Piece, ...]
_FRAME = Tone.QUIET | Tone.SIGN
_BAR = Piece(" │ ", tone=_FRAME)


class ShownRow(NamedTuple):
    """One row on the screen; `line` is the first logical line of the source that it shows."""

    line: int
    pieces: tuple[Piece, ...]
    is_code: bool = False
    is_quote: bool = False  # only of rows of the exact text, which show no other sign of a quote


@dataclass(frozen=True)
class ShownLine:
    """A line that wraps."""

    line: int
    pieces: tuple[Piece, ...] = ()
    lead: tuple[Piece, ...] = ()  # before its first row, such as the sign of a list
    indent: tuple[Piece, ...] = ()  # before the other rows
    is_code: bool = False
    is_quote: bool = False

    def rows(self, width: int) -> list[ShownRow]:
        lead, *rest = wrapped(self.pieces, max(_LEAST_CELLS, width - cells(self.lead)))
        before = ((*self.lead, *lead), *((*self.indent, *row) for row in rest))
        return [ShownRow(self.line, pieces, self.is_code, self.is_quote) for pieces in before]


@dataclass(frozen=True)
class Rule:
    """A horizontal rule."""

    line: int

    def rows(self, width: int) -> list[ShownRow]:
        return [ShownRow(self.line, (Piece("─" * width, tone=_FRAME),))]


@dataclass(frozen=True)
class Table:
    """A complete table, its header first: columns are cut where the row has no room, cells wrap."""

    line: int
    lines: tuple[int, ...]  # the logical line of each row
    cells: tuple[tuple[Cell, ...], ...]
    aligns: tuple[Align, ...]

    def rows(self, width: int) -> list[ShownRow]:
        widths = self._widths(width)
        rule = Piece("─┼─".join("─" * column for column in widths), tone=_FRAME)
        rows: list[ShownRow] = []
        for line, row in zip(self.lines, self.cells, strict=True):
            rows += [ShownRow(line, pieces) for pieces in self._row(row, widths)]
            if line == self.line:
                rows.append(ShownRow(line, (rule,)))
        return rows

    def _widths(self, width: int) -> list[int]:
        """Return the cells of each column, the widest ones cut until all fit."""
        columns = zip_longest(*self.cells, fillvalue=())
        widths = [max(1, *(cells(cell) for cell in column)) for column in columns]
        excess = sum(widths) + 3 * (len(widths) - 1) - width
        while excess > 0 and max(widths) > _LEAST_COLUMN:
            widest = widths.index(max(widths))
            others = [each for each in widths if each < widths[widest]]
            cut = min(excess, max(1, widths[widest] - max(others, default=_LEAST_COLUMN)))
            widths[widest] -= min(cut, widths[widest] - _LEAST_COLUMN)
            excess -= cut
        return widths

    def _row(self, row: Sequence[Cell], widths: Sequence[int]) -> list[tuple[Piece, ...]]:
        filled = [*row, *[()] * (len(widths) - len(row))]
        parts = [wrapped(cell, width) for cell, width in zip(filled, widths, strict=False)]
        shown = []
        for pieces in zip_longest(*parts, fillvalue=()):
            columns = zip(pieces, widths, self.aligns, strict=False)
            padded = [_padded(part, width, align) for part, width, align in columns]
            shown.append(
                tuple(
                    piece
                    for i, part in enumerate(padded)
                    for piece in (*([_BAR] if i else []), *part)
                )
            )
        return shown


def _padded(pieces: Sequence[Piece], width: int, align: Align) -> list[Piece]:
    room = max(0, width - cells(pieces))
    left = {"left": 0, "center": room // 2, "right": room}[align]
    return [Piece(" " * left), *pieces, Piece(" " * (room - left))]


Shown = ShownLine | Rule | Table
"""A part of the text that starts at a logical line of the source."""


def cells(pieces: Iterable[Piece]) -> int:
    """Return the total width of the pieces in cells."""
    return sum(cell_len(piece.text) for piece in pieces)


def wrapped(pieces: Sequence[Piece], width: int) -> list[list[Piece]]:
    """Return the pieces in rows of at most `width` cells, at least one row.

    Spaces at which a row is broken are dropped.
    """
    text = "".join(piece.text for piece in pieces)
    starts = list(accumulate((len(piece.text) for piece in pieces), initial=0))
    rows, start = [], 0
    for end in breaks(text, max(1, width)):
        last = start + len(text[start:end].rstrip(" "))
        rows.append(_between(pieces, starts, start, last))
        start = end
    return [*rows, _between(pieces, starts, start, len(text))]


def _between(pieces: Sequence[Piece], starts: Sequence[int], first: int, last: int) -> list[Piece]:
    """Return the characters from `first` to `last` of adjacent pieces with these starts."""
    found = []
    for number in range(bisect_right(starts, first) - 1, bisect_left(starts, last)):
        piece, at = pieces[number], starts[number]
        start, end = max(first - at, 0), min(last - at, len(piece.text))
        if start < end:
            is_whole = end - start == len(piece.text)
            found.append(piece if is_whole else piece.part(start, end))
    return found
