"""The default theme for a terminal.

It depends on COLORFGBG, which programs such as vim read too; its last part is the number of the
background. A terminal of sixteen colours shows most of our colours as the same white, so there the
terminal's own colours are used.
"""

from collections.abc import Mapping

from mlxspec_app.themes.own import DAY, MINT
from mlxspec_app.themes.terminal import TERMINAL, TERMINAL_LIGHT

_LIGHT = {"7", *map(str, range(9, 16))}


def theme_for(environment: Mapping[str, str], color_system: str | None) -> str:
    """Return the name of the theme for some environment variables.

    `color_system` is Rich's name of the terminal's colours; None if unknown.
    """
    is_light = environment.get("COLORFGBG", "").rpartition(";")[2] in _LIGHT
    dark, light = (TERMINAL, TERMINAL_LIGHT) if color_system == "standard" else (MINT, DAY)
    return (light if is_light else dark).name
