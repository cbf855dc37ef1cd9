"""The themes with our own colours: mint; dusk, which has no green; contrast; and the light day.

The colours of tokens come from a search inside the xterm-256 cube. It maximised the smallest
difference between any two of them in normal, protan, deutan and tritan vision, at a contrast of at
least 4.5 on every background. In `contrast` it is at least 7, the enhanced level of WCAG 2.1. The
frame of the app is grey, so that a colour always means a token.

The only greys of a terminal with 256 colours (Terminal.app before macOS 26) are a ramp in steps of
ten levels. The frame has equal channels, which Rich maps to the ramp; with any tint it would map a
dark grey to black or navy, and a light one to cyan. Two greys side by side differ by ten levels or
more, so each has its own entry in the ramp.
"""

from textual.theme import Theme

PREFIX = "spec-"
_TOKENS = {
    # mint, contrast, day
    "plain": ("#E0E0E0", "#FFFFFF", "#1C1C1C"),  # text without a draft
    "loud": ("#FFFFFF", "#FFFFFF", "#000000"),  # headings, strong words, keywords of code
    "guess": ("#AFFFAF", "#87FF87", "#005F87"),  # the tint of guessed words
    "guess-loud": ("#D7FFD7", "#D7FFD7", "#005F87"),  # by day one hue, and no other is readable
    "guess-quiet": ("#87AF87", "#87D787", "#005F87"),
    "accepted": ("#AFFFAF", "#87FF87", "#005F5F"),
    "corrected": ("#D7AF00", "#D7D700", "#5F5F00"),
    "bonus": ("#8787D7", "#AFAFFF", "#870087"),
    "rejected": ("#FF5F5F", "#FFAFAF", "#5F0000"),  # errors too
    "pending": ("#A0A0A0", "#C8C8C8", "#4E4E4E"),  # drafts without their verdict
    "muted": ("#A0A0A0", "#C8C8C8", "#4E4E4E"),  # notes
    "line": ("#303030", "#4E4E4E", "#D2D2D2"),  # rules, and behind the chosen row
    "band-a": ("#121212", "#121212", "#F0F0F0"),  # behind odd rounds
    "band-b": ("#262626", "#262626", "#DCDCDC"),  # behind even rounds
    "step-1": ("#949494", "#A0A0A0", "#585858"),  # five shades of text, from weak to strong
    "step-2": ("#AAAAAA", "#B8B8B8", "#444444"),
    "step-3": ("#C8C8C8", "#CFCFCF", "#303030"),
    "step-4": ("#E6E6E6", "#E7E7E7", "#1C1C1C"),
    "step-5": ("#FFFFFF", "#FFFFFF", "#000000"),
}
_FRAME = {
    "background": ("#080808", "#000000", "#FFFFFF"),
    "surface": ("#121212", "#121212", "#F0F0F0"),  # widgets on the page
    "panel": ("#1C1C1C", "#1C1C1C", "#E6E6E6"),  # the bars at the edges of the page
    "strong": ("#DCDCDC", "#FFFFFF", "#303030"),  # the most visible grey
    "border": ("#626262", "#FFFFFF", "#808080"),  # of text fields
    "selection": ("#444444", "#626262", "#BEBEBE"),
}
_DUSK = {
    "guess": "#8787FF",
    "guess-loud": "#AFAFFF",
    "guess-quiet": "#8787AF",
    "accepted": "#8787FF",
    "corrected": "#FFAF00",
    "bonus": "#AF87AF",
}


def make_theme(
    name: str,
    tokens: dict[str, str],
    frame: dict[str, str],
    variables: dict[str, str] | None = None,
    *,
    dark: bool = True,
    ansi: bool = False,
) -> Theme:
    """Return a theme; `tokens` and `frame` have the keys above, and `variables` go last."""
    behind = ("scrollbar-background", "scrollbar-background-hover", "scrollbar-background-active")
    return Theme(
        name=name,
        ansi=ansi,
        dark=dark,
        primary=frame["strong"],
        secondary=tokens["muted"],
        accent=tokens["accepted"],
        warning=tokens["corrected"],
        error=tokens["rejected"],
        success=tokens["accepted"],
        foreground=tokens["plain"],
        background=frame["background"],
        surface=frame["surface"],
        panel=frame["panel"],
        variables={PREFIX + token: colour for token, colour in tokens.items()}
        | dict.fromkeys((*behind, "scrollbar-corner-color"), frame["background"])
        | {
            "border": frame["border"],
            "border-blurred": tokens["line"],
            "block-cursor-background": frame["strong"],
            "block-cursor-foreground": frame["background"],
            "input-selection-background": frame["selection"],
            "screen-selection-background": frame["selection"],
            "footer-background": frame["surface"],
            "footer-key-foreground": tokens["plain"],
            "footer-description-foreground": tokens["muted"],
            "scrollbar": tokens["line"],
            "scrollbar-hover": frame["border"],
            "scrollbar-active": tokens["muted"],
        }
        | (variables or {}),
    )


def _own(name: str, column: int, changes: dict[str, str] | None = None) -> Theme:
    tokens = {token: colours[column] for token, colours in _TOKENS.items()} | (changes or {})
    frame = {part: colours[column] for part, colours in _FRAME.items()}
    cursor = {
        "input-cursor-background": tokens["plain"],
        "input-cursor-foreground": frame["background"],
    }
    return make_theme(name, tokens, frame, cursor, dark=name != "day")


MINT, CONTRAST, DAY = _own("mint", 0), _own("contrast", 1), _own("day", 2)
DUSK = _own("dusk", 0, _DUSK)
