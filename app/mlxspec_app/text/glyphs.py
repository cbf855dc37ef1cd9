"""Every sign that the app draws around the text, and its ASCII equivalent.

All code uses Unicode signs. For ASCII terminals a filter replaces them at the very end, in the
painted rows of a widget, and with them the signs that Textual draws, such as borders and the
ellipsis of a cut line. Each equivalent is one cell wide like its sign, so no layout changes.

The text of the user and of the model never changes. So a widget that shows such text removes the
filter with `without_ascii`, and passes its own signs through `sign`.
"""

import sys
import unicodedata
from collections.abc import Sequence

from rich.segment import Segment
from textual.app import App
from textual.color import Color
from textual.filter import LineFilter

# ruff: noqa: RUF001 - this table consists of signs that look like ASCII
_PAIRS = (
    ("✓✔✗✘✕✚→·", "++xxx*>."),  # verdicts
    ("▏▎▍▌▋▊▉█", "|||==###"),  # filled from the left
    ("▁▂▃▄▅▆▇", "_.-=+*%"),  # filled from below
    ("░▒▓", "-=#"),
    ("▀▐▔▕▖▗▘▝▙▛▜▟", "^|~|..''++++"),  # other parts of borders
    ("←↑↓↔↕⇥↵⏎", "<^v-|>$$"),
    ("▶▷▸▹◀◁◂◃▲△▴▼▽▾❯❮›‹", ">>>><<<<^^^vvv><><"),
    ("●○◉◌◐◆◇■□▪▫•", "ooooo**#.#.*"),
    ("…⋯⋮‖–—×÷≈≠≤≥±∞−", "~~:|--x/~!<>~8-"),
    ("‘’“”°␣␡", "''\"\"o_?"),
)
_SIGNS = {sign: twin for signs, twins in _PAIRS for sign, twin in zip(signs, twins, strict=True)}
_BOXES = range(0x2500, 0x2580)
_DIAGONALS = {"╱": "/", "╲": "\\", "╳": "x"}


def _box_twin(sign: str) -> str:
    """Return the ASCII equivalent of a line, a corner or a crossing."""
    name = unicodedata.name(sign)
    upright = any(word in name for word in ("VERTICAL", "UP", "DOWN"))
    level = any(word in name for word in ("HORIZONTAL", "LEFT", "RIGHT"))
    if upright and level:
        return "+"
    if upright:
        return "|"
    return "=" if "HEAVY" in name or "DOUBLE" in name else "-"


_TABLE = str.maketrans({chr(c): _box_twin(chr(c)) for c in _BOXES} | _DIAGONALS | _SIGNS)


def to_ascii(text: str) -> str:
    """Return the text with every sign of the app in ASCII; other characters stay."""
    return text if text.isascii() else text.translate(_TABLE)


def terminal_takes_unicode() -> bool:
    """Return whether the stream to the terminal has a Unicode encoding."""
    encoding = getattr(sys.__stderr__, "encoding", None) or "utf-8"
    return encoding.lower().replace("_", "-").startswith("utf")


class AsciiFilter(LineFilter):
    """Replaces the signs of the app with their ASCII equivalents."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        return [Segment(to_ascii(text), style, control) for text, style, control in segments]


def without_ascii(filters: Sequence[LineFilter]) -> Sequence[LineFilter]:
    """Return the filters for a widget whose text must not change."""
    return [item for item in filters if not isinstance(item, AsciiFilter)]


def sign(app: App[object], text: str) -> str:
    """Return the signs of a widget without the filter, in ASCII if the app uses ASCII."""
    in_ascii = any(isinstance(item, AsciiFilter) for item in app.get_line_filters())
    return to_ascii(text) if in_ascii else text
