"""The themes: four with our own colours, and two with the terminal's colours.

Each defines the colours of tokens, `$spec-*` in style sheets.
"""

from mlxspec_app.themes.own import CONTRAST, DAY, DUSK, MINT, PREFIX
from mlxspec_app.themes.terminal import TERMINAL, TERMINAL_LIGHT

__all__ = ["DAY", "MINT", "THEMES", "fallback_colours"]

THEMES = (MINT, DAY, DUSK, CONTRAST, TERMINAL, TERMINAL_LIGHT)


def fallback_colours(*, dark: bool) -> dict[str, str]:
    """Return the colours of tokens for a theme that does not define them."""
    colours = (MINT if dark else DAY).variables
    return {name: colour for name, colour in colours.items() if name.startswith(PREFIX)}
