"""Every sign that the app draws around the text, and its twin in ASCII.

The app is written with Unicode signs throughout. Where ASCII is wanted they are replaced at the
very edge, sign for sign, as the rows of a widget are painted: so no function has to know which
set is in use, and what Textual draws by itself, such as borders and the dots of a cut line, is
replaced as well. A twin takes one cell like its sign, so no layout changes.
"""

import sys
import unicodedata

# ruff: noqa: RUF001 - signs that look like ASCII are what this table is about
_PAIRS = (
    ("✓✔✗✘✕✚→·", "++xxx*>."),  # verdicts
    ("▏▎▍▌▋▊▉█", "|||==###"),  # filled from the left
    ("▁▂▃▄▅▆▇", "_.-=+*%"),  # filled from below
    ("░▒▓", "-=#"),
    ("▀▐▔▕▖▗▘▝▙▛▜▟", "^|~|..''++++"),  # what else borders are made of
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
    """Return the twin of a line, a corner or a crossing."""
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
    """Return the text with every sign of the app as its twin; all else stays what it is."""
    return text if text.isascii() else text.translate(_TABLE)


def terminal_takes_unicode() -> bool:
    """Whether the stream that the terminal is written to is encoded as Unicode."""
    encoding = getattr(sys.__stderr__, "encoding", None) or "utf-8"
    return encoding.lower().replace("_", "-").startswith("utf")
