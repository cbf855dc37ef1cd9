"""What is shown of a text: pieces with a tone, in lines that wrap into rows.

A piece knows from which characters of the source it came, so the token that wrote it, a selection
and a copy are those of the exact text, although the marks of Markdown are not shown. Signs that the
app adds, such as the frame of a table, come from no character.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Flag, auto
from typing import NamedTuple, Protocol

from rich.cells import cell_len

from mlxspec_app.text.wrap import breaks

_LEAST_CELLS = 8


class Tone(Flag):
    """How characters stand out from the text around them; neither in bold nor underlined."""

    PLAIN = 0
    LOUD = auto()
    QUIET = auto()
    ITALIC = auto()
    STRIKE = auto()
    CODE = auto()
    SIGN = auto()
    """The app draws it, so it has an ASCII equivalent."""


class Piece(NamedTuple):
    """Neighbouring characters with one tone.

    Attributes:
        text: The characters shown.
        line: Logical line of the source; -1 for a sign of the app.
        start: Index in that line of the first character.
        tone: How they stand out.
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
    """One row on the screen.

    Attributes:
        line: First logical line of the source that it shows.
        pieces: Its pieces in order.
        is_code: Whether it belongs to a block of code.
    """

    line: int
    pieces: tuple[Piece, ...]
    is_code: bool = False


class Shown(Protocol):
    """A part of the text from one logical line of the source on."""

    @property
    def line(self) -> int:
        """The first logical line of the source that it shows."""

    def rows(self, width: int) -> list[ShownRow]:
        """Return its rows for a width in cells."""


@dataclass(frozen=True)
class ShownLine:
    """A line that wraps.

    Attributes:
        line: Its logical line in the source.
        pieces: The text.
        lead: What stands before its first row, such as the sign of a list.
        indent: What stands before all further rows.
        is_code: Whether it belongs to a block of code.
    """

    line: int
    pieces: tuple[Piece, ...] = ()
    lead: tuple[Piece, ...] = ()
    indent: tuple[Piece, ...] = ()
    is_code: bool = False

    def rows(self, width: int) -> list[ShownRow]:
        lead, *rest = wrapped(self.pieces, max(_LEAST_CELLS, width - cells(self.lead)))
        before = ((*self.lead, *lead), *((*self.indent, *row) for row in rest))
        return [ShownRow(self.line, pieces, self.is_code) for pieces in before]


@dataclass(frozen=True)
class Rule:
    """A horizontal rule."""

    line: int

    def rows(self, width: int) -> list[ShownRow]:
        return [ShownRow(self.line, (Piece("─" * width, tone=Tone.QUIET | Tone.SIGN),))]


def cells(pieces: Iterable[Piece]) -> int:
    """Return the cells of pieces beside each other."""
    return sum(cell_len(piece.text) for piece in pieces)


def wrapped(pieces: Sequence[Piece], width: int) -> list[list[Piece]]:
    """Return the pieces in rows of at most `width` cells, at least one row.

    The spaces after which a row is broken are in no row.
    """
    text = "".join(piece.text for piece in pieces)
    rows, start = [], 0
    for end in breaks(text, max(1, width)):
        rows.append(between(pieces, start, start + len(text[start:end].rstrip(" "))))
        start = end
    return [*rows, between(pieces, start, len(text))]


def between(pieces: Sequence[Piece], first: int, last: int) -> list[Piece]:
    """Return the characters from `first` to `last` of pieces beside each other."""
    found, at = [], 0
    for piece in pieces:
        start, end = max(first - at, 0), min(last - at, len(piece.text))
        if start < end:
            found.append(piece.part(start, end))
        at += len(piece.text)
    return found
