"""Themes with the terminal's own sixteen colours, so that the app looks like other programs.

The user chose these colours, and the app cannot read them. So all text is on the terminal's own
background, the only one that is surely readable. A round starts with a mark instead of a band, and
chosen or selected text is in reverse.
"""

from textual.theme import Theme

_OWN = "ansi_default"


def _make(name: str, *, dark: bool, tokens: dict[str, str], muted: str, line: str) -> Theme:
    loudest = "ansi_bright_white" if dark else "ansi_black"
    spec = {
        **tokens,
        "plain": _OWN,
        "loud": loudest,
        "guess": tokens["accepted"],
        "guess-loud": tokens["accepted"],
        "guess-quiet": "ansi_cyan",
        "pending": muted,
        "muted": muted,
        "line": line,
        "band-a": _OWN,
        "band-b": _OWN,
        "step-1": muted,
        "step-2": muted,
        "step-3": _OWN,
        "step-4": _OWN,
        "step-5": loudest,
    }
    return Theme(
        name=name,
        ansi=True,
        dark=dark,
        primary=_OWN,
        secondary=muted,
        accent=tokens["accepted"],
        warning=tokens["corrected"],
        error=tokens["rejected"],
        success=tokens["accepted"],
        foreground=_OWN,
        background=_OWN,
        surface=_OWN,
        panel=_OWN,
        variables={f"spec-{part}": colour for part, colour in spec.items()}
        | {
            "ansi-background": _OWN,
            "ansi-foreground": _OWN,
            "border": _OWN,
            "border-blurred": line,
            "block-cursor-background": _OWN,
            "block-cursor-foreground": _OWN,
            "block-cursor-text-style": "bold reverse",
            "input-selection-background": _OWN,
            "screen-selection-background": _OWN,
            "screen-selection-foreground": _OWN,
            "footer-background": _OWN,
            "footer-key-foreground": _OWN,
            "footer-description-foreground": muted,
            "scrollbar": muted,
            "scrollbar-hover": _OWN,
            "scrollbar-active": _OWN,
            "scrollbar-background": _OWN,
            "scrollbar-background-hover": _OWN,
            "scrollbar-background-active": _OWN,
            "scrollbar-corner-color": _OWN,
        },
    )


TERMINAL = _make(
    "terminal",
    dark=True,
    tokens={
        "accepted": "ansi_bright_cyan",
        "corrected": "ansi_bright_yellow",
        "bonus": "ansi_bright_magenta",
        "rejected": "ansi_bright_red",
    },
    muted="ansi_white",
    line="ansi_bright_black",
)
# On a light background the bright colours, above all yellow, are not readable.
TERMINAL_LIGHT = _make(
    "terminal-light",
    dark=False,
    tokens={
        "accepted": "ansi_cyan",
        "corrected": "ansi_yellow",
        "bonus": "ansi_magenta",
        "rejected": "ansi_red",
    },
    muted="ansi_bright_black",
    line="ansi_white",
)
