"""A table: columns as wide as their cells, narrower where the row has no room, cells that wrap."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Literal

from mlxspec_app.text.rendering.pieces import Piece, ShownRow, Tone, cells, wrapped

Align = Literal["left", "center", "right"]
Cell = tuple[Piece, ...]

_LEAST = 6  # cells; no column is cut below this
_QUIET = Tone.QUIET | Tone.SIGN
_BAR = Piece(" │ ", tone=_QUIET)


@dataclass(frozen=True)
class Table:
    """A complete table; its first row is the header, and `lines` are the rows' logical lines."""

    line: int
    lines: tuple[int, ...]
    cells: tuple[tuple[Cell, ...], ...]
    aligns: tuple[Align, ...]

    def rows(self, width: int) -> list[ShownRow]:
        widths = self._widths(width)
        rule = Piece("─┼─".join("─" * column for column in widths), tone=_QUIET)
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
        while excess > 0 and max(widths) > _LEAST:
            widest = widths.index(max(widths))
            others = [each for each in widths if each < widths[widest]]
            cut = min(excess, max(1, widths[widest] - max(others, default=_LEAST)))
            widths[widest] -= min(cut, widths[widest] - _LEAST)
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
