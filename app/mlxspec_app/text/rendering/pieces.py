"""The text on the screen: pieces with a tone, in lines that wrap into rows.

Each piece records which characters of the source it shows. So its token, a selection and a copy
refer to the exact text, although the marks of Markdown are not shown. Signs that the app adds, such
as the frame of a table, show no character of the source.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Flag, auto
from itertools import accumulate
from typing import NamedTuple, Protocol

from rich.cells import cell_len

from mlxspec_app.text.wrap import breaks

_LEAST_CELLS = 8


class Tone(Flag):
    """How characters stand out from the text around them, without bold or underline."""

    PLAIN = 0
    LOUD = auto()
    QUIET = auto()
    ITALIC = auto()
    STRIKE = auto()
    CODE = auto()
    SIGN = auto()
    """The app draws it, so it has an ASCII equivalent."""


class Piece(NamedTuple):
    """Adjacent characters with one tone.

    `line` is their logical line in the source, or -1 for a sign of the app; `start` is the index in
    that line of the first character.
    """

    text: str
    line: int = -1
    start: int = 0
    tone: Tone = Tone.PLAIN

    def part(self, first: int, last: int) -> "Piece":
        """Return the characters from `first` to `last`."""
        start = self.start + first if self.line >= 0 else 0
        return self._replace(text=self.text[first:last], start=start)


class ShownRow(NamedTuple):
    """One row on the screen; `line` is the first logical line of the source that it shows.

    `is_quote` is known only of rows of the exact text, which show no other sign of a quote.
    """

    line: int
    pieces: tuple[Piece, ...]
    is_code: bool = False
    is_quote: bool = False


class Shown(Protocol):
    """A part of the text that starts at a logical line of the source."""

    @property
    def line(self) -> int:
        """The first logical line of the source that it shows."""

    def rows(self, width: int) -> list[ShownRow]:
        """Return its rows for a width in cells."""


@dataclass(frozen=True)
class ShownLine:
    """A line that wraps.

    `lead`, such as the sign of a list, precedes its first row, and `indent` the other rows.
    """

    line: int
    pieces: tuple[Piece, ...] = ()
    lead: tuple[Piece, ...] = ()
    indent: tuple[Piece, ...] = ()
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
        return [ShownRow(self.line, (Piece("─" * width, tone=Tone.QUIET | Tone.SIGN),))]


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
