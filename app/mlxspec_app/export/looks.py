"""The colours of exports: those of two themes, and the nearest ones of a terminal.

All colours of both themes are in the xterm-256 table, so the film shows the colours of the page on
any terminal.
"""

from functools import cache
from importlib import resources
from itertools import product
from math import dist

from mlxspec_app.themes import DAY, MINT
from mlxspec_app.themes.looks import LOOKS, Look
from mlxspec_app.themes.own import PREFIX

EXPORTED = {**LOOKS, "said": Look("text", bold=True), "muted": Look("muted")}
"""The looks of tokens, of what the user said, and of figures."""

_LEVELS = (0, 95, 135, 175, 215, 255)


def colours(*, dark: bool) -> dict[str, str]:
    """Return the colours of a theme by name, as #RRGGBB; mint is the dark one, day the light one.

    The names are those of the theme's own colours, and "page", "surface", "panel", "text", "edge".
    """
    theme = MINT if dark else DAY
    spec = ((n.removeprefix(PREFIX), v) for n, v in theme.variables.items() if n.startswith(PREFIX))
    frame = {
        "page": theme.background,
        "surface": theme.surface,
        "panel": theme.panel,
        "text": theme.foreground,
        "edge": theme.variables["border"],
    }
    return dict(spec) | {name: value for name, value in frame.items() if value is not None}


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
    greys = [(8 + 10 * step,) * 3 for step in range(24)]
    table = [*product(_LEVELS, repeat=3), *greys]
    return 16 + min(range(len(table)), key=lambda entry: dist(wanted, table[entry]))
