"""Breaks plain text between words as it streams in, for a terminal that would break inside them.

A word is held back until it is complete. Code between fences stays as it is: a line break in it
would be part of what a reader copies. Characters of scripts without spaces are separate words.
"""

import re

from rich.cells import cell_len

_PIECES = re.compile(r"\n|[^\S\n]+|[\u2e80-\uffef]|[^\s\u2e80-\uffef]+")
_FENCES = ("```", "~~~")


class WordWrapper:
    """Wraps one text to `width` cells, piece by piece."""

    def __init__(self, width: int) -> None:
        self._width = width
        self._column = 0
        self._space = ""
        self._word = ""
        self._is_code = False

    def add(self, text: str) -> str:
        """Add text and return the words that are complete."""
        *pieces, last = _PIECES.findall(self._word + text) or [""]
        is_growing = not last.isspace() and cell_len(last) < self._width
        self._word = last if is_growing else ""
        return "".join(map(self._place, pieces if is_growing else (*pieces, last)))

    def end(self) -> str:
        """Return the text that was held back; the next text starts a new line."""
        rest = self._place(self._word) + self._space
        self._column, self._space, self._word, self._is_code = 0, "", "", False
        return rest

    def _place(self, piece: str) -> str:
        if piece == "\n":
            self._column, self._space = 0, ""
            return piece
        if not piece or piece.isspace():
            self._space += piece
            return ""
        if self._column == 0 and piece.startswith(_FENCES):
            self._is_code = not self._is_code
        space, self._space = self._space, ""
        cells = cell_len(space + piece)
        if self._column and self._column + cells > self._width and not self._is_code:
            self._column = cell_len(piece)
            return f"\n{piece}"
        self._column += cells
        return space + piece
