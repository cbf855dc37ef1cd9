"""The themes: four with our own colours, and two with the terminal's colours.

Each defines the colours of tokens, `$spec-*` in style sheets.
"""

from mlxspec_app.themes.dark import CONTRAST, DUSK, MINT
from mlxspec_app.themes.light import DAY
from mlxspec_app.themes.palette import colours_of
from mlxspec_app.themes.terminal import TERMINAL, TERMINAL_LIGHT

__all__ = ["DAY", "MINT", "THEMES", "fallback_colours"]

THEMES = (MINT, DAY, DUSK, CONTRAST, TERMINAL, TERMINAL_LIGHT)


def fallback_colours(*, dark: bool) -> dict[str, str]:
    """Return the colours of tokens for a theme that does not define them."""
    return colours_of(MINT if dark else DAY)
