"""The themes: four with our own colours, and two with the terminal's colours.

Each defines the colours of tokens, `$spec-*` in style sheets.
"""

from collections.abc import Mapping

from mlxspec_app.themes.own import CONTRAST, DAY, DUSK, MINT, PREFIX
from mlxspec_app.themes.terminal import TERMINAL, TERMINAL_LIGHT

__all__ = ["DAY", "MINT", "THEMES", "fallback_colours", "theme_for"]

THEMES = (MINT, DAY, DUSK, CONTRAST, TERMINAL, TERMINAL_LIGHT)
_LIGHT = {"7", *map(str, range(9, 16))}


def fallback_colours(*, dark: bool) -> dict[str, str]:
    """Return the colours of tokens for a theme that does not define them."""
    colours = (MINT if dark else DAY).variables
    return {name: colour for name, colour in colours.items() if name.startswith(PREFIX)}


def theme_for(environment: Mapping[str, str], color_system: str | None, stored: str = "") -> str:
    """Return the name of the theme for a terminal: the `stored` one, if it can be shown there.

    COLORFGBG, which programs such as vim read too, ends with the number of the background. On a
    terminal of sixteen colours (`color_system`, as Rich names it), most of our colours would be the
    same white, so there the terminal's own are used.
    """
    has_few = color_system == "standard"
    chosen = next((theme for theme in THEMES if theme.name == stored), None)
    if chosen is not None and (chosen.ansi or not has_few):
        return stored
    is_light = environment.get("COLORFGBG", "").rpartition(";")[2] in _LIGHT
    if chosen is not None:
        is_light = not chosen.dark
    dark, light = (TERMINAL, TERMINAL_LIGHT) if has_few else (MINT, DAY)
    return (light if is_light else dark).name
