"""Soft wrap: where the rows of a line end.

The wrap is greedy, and a row depends only on the text before its end. Rows break after spaces
(which may stand past the edge, invisible) and around wide characters. A word longer than a row is
cut between grapheme clusters, so no character is split.
"""

import re
from collections.abc import Iterator
from typing import Literal

from rich.cells import cell_len, get_character_cell_size, split_graphemes

_Kind = Literal["space", "word", "wide"]
"""Spaces may stand past the edge, words move to the next row, wide characters break anywhere."""

_ASCII_CHUNK = re.compile(r" +|[^ ]+")


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
    new_kind: _Kind
    for first, last, _ in split_graphemes(text)[0]:
        # by its first character: later ones join the cluster, but must not move wrapped text
        new_kind = "wide" if get_character_cell_size(text[first]) > 1 else "word"
        new_kind = "space" if text[first:last] == " " else new_kind
        if kind is not None and (new_kind != kind or kind == "wide"):
            yield start, first, cell_len(text[start:first]), kind
            start = first
        kind = new_kind
    if kind is not None:
        yield start, len(text), cell_len(text[start:]), kind
