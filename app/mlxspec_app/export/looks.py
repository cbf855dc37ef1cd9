"""The colours of exports: those of two themes, and the nearest ones of a terminal.

All colours of both themes are in the xterm-256 table, so the film shows the colours of the page on
any terminal.
"""

from functools import cache
from importlib import resources
from math import dist

from mlxspec_app.themes import DAY, MINT
from mlxspec_app.themes.looks import LOOKS, Look

EXPORTED = {**LOOKS, "said": Look("text", bold=True), "muted": Look("muted")}
"""The looks of tokens, of what the user said, and of figures."""

_PREFIX = "spec-"
_LEVELS = (0, 95, 135, 175, 215, 255)


def colours(*, dark: bool) -> dict[str, str]:
    """Return the colours of a theme by name, as #RRGGBB; mint is the dark one, day the light one.

    The names are those of the theme's own colours, and "page", "surface", "panel", "text", "edge".
    """
    theme = MINT if dark else DAY
    named = {
        name.removeprefix(_PREFIX): value
        for name, value in theme.variables.items()
        if name.startswith(_PREFIX)
    }
    frame = {
        "page": theme.background,
        "surface": theme.surface,
        "panel": theme.panel,
        "text": theme.foreground,
        "edge": theme.variables["border"],
    }
    return named | {name: value for name, value in frame.items() if value is not None}


def tints() -> str:
    """Return a rule with the colours of both themes; `color-scheme` selects one of them."""
    day, mint = colours(dark=False), colours(dark=True)
    both = "".join(f"--{name}:light-dark({day[name]},{mint[name]});" for name in mint)
    return f":root{{{both}}}"


def page_part(*names: str) -> str:
    """Return the text of files in this folder from which pages are made, concatenated."""
    folder = resources.files("mlxspec_app.export")
    return "".join(folder.joinpath(name).read_text(encoding="utf-8") for name in names)


@cache
def xterm(colour: str) -> int:
    """Return the entry of the 256-colour table, from 16 on, that is nearest to #RRGGBB."""
    wanted = tuple(int(colour[start : start + 2], 16) for start in (1, 3, 5))
    cube = {
        16 + 36 * r + 6 * g + b: (_LEVELS[r], _LEVELS[g], _LEVELS[b])
        for r in range(6)
        for g in range(6)
        for b in range(6)
    }
    table = cube | {232 + step: (8 + 10 * step,) * 3 for step in range(24)}
    return min(table, key=lambda code: dist(wanted, table[code]))
