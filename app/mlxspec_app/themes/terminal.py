"""Themes with the terminal's own sixteen colours, so that the app looks like other programs.

The app cannot read these colours, so all text is on the background of the terminal, the only one
that is surely readable. A round starts with a mark, and chosen text is in reverse.
"""

from textual.theme import Theme

from mlxspec_app.themes.own import make_theme

_OWN = "ansi_default"
_PARTS = ("background", "surface", "panel", "strong", "border", "selection")


def _terminal(name: str, bright: str, muted: str, line: str, loudest: str, *, dark: bool) -> Theme:
    """Return a theme; on a light background bright colours, above all yellow, are not readable."""
    accepted = f"{bright}cyan"
    tokens = dict.fromkeys(("plain", "band-a", "band-b", "step-3", "step-4"), _OWN)
    tokens |= dict.fromkeys(("accepted", "guess", "guess-loud"), accepted)
    tokens |= dict.fromkeys(("pending", "muted", "step-1", "step-2"), muted)
    tokens |= dict.fromkeys(("loud", "step-5"), loudest)
    tokens |= {"guess-quiet": "ansi_cyan", "corrected": f"{bright}yellow", "line": line}
    tokens |= {"bonus": f"{bright}magenta", "rejected": f"{bright}red"}
    variables = {
        "ansi-background": _OWN,
        "ansi-foreground": _OWN,
        "block-cursor-text-style": "bold reverse",
        "screen-selection-foreground": _OWN,
        "scrollbar": muted,
        "scrollbar-active": _OWN,
    }
    frame = dict.fromkeys(_PARTS, _OWN)
    return make_theme(name, tokens, frame, variables, dark=dark, ansi=True)


TERMINAL = _terminal(
    "terminal", "ansi_bright_", "ansi_white", "ansi_bright_black", "ansi_bright_white", dark=True
)
TERMINAL_LIGHT = _terminal(
    "terminal-light", "ansi_", "ansi_bright_black", "ansi_white", "ansi_black", dark=False
)
