"""The two themes and the colours of speculation, `$spec-*` in style sheets.

The sets were searched inside the xterm-256 cube for the largest smallest difference between any
two of them as seen with normal, protan, deutan and tritan vision, at a contrast of 4.5 or more
on every background they are drawn on. The frame of the app is kept grey, so that a colour on the
screen always speaks of a token.
"""

from textual.theme import Theme

MINT_COLOURS = {
    "spec-plain": "#E0E0E0",
    "spec-accepted": "#AFFFAF",
    "spec-corrected": "#D7AF00",
    "spec-bonus": "#8787D7",
    "spec-rejected": "#FF5F5F",
    "spec-pending": "#9298A5",
    "spec-muted": "#9298A5",
    "spec-line": "#343A46",
    "spec-band-a": "#171A21",
    "spec-band-b": "#1F2430",
    "spec-step-1": "#9298A5",
    "spec-step-2": "#A9AEBA",
    "spec-step-3": "#C3C7D0",
    "spec-step-4": "#E0E3E8",
    "spec-step-5": "#FFFFFF",
}
DAY_COLOURS = {
    "spec-plain": "#1C1C1C",
    "spec-accepted": "#005F87",
    "spec-corrected": "#5F5F00",
    "spec-bonus": "#000087",
    "spec-rejected": "#5F0000",
    "spec-pending": "#585F6B",
    "spec-muted": "#585F6B",
    "spec-line": "#C3C8D1",
    "spec-band-a": "#F1F3F6",
    "spec-band-b": "#E2E7EF",
    "spec-step-1": "#5F6672",
    "spec-step-2": "#4B515C",
    "spec-step-3": "#373C45",
    "spec-step-4": "#22262D",
    "spec-step-5": "#000000",
}

MINT = Theme(
    name="mint",
    primary="#D5DAE3",
    secondary="#9298A5",
    accent="#AFFFAF",
    warning="#D7AF00",
    error="#FF5F5F",
    success="#AFFFAF",
    foreground="#E0E0E0",
    background="#101216",
    surface="#171A21",
    panel="#1C2029",
    dark=True,
    variables={
        **MINT_COLOURS,
        "border": "#5A6272",
        "border-blurred": "#343A46",
        "block-cursor-background": "#D5DAE3",
        "block-cursor-foreground": "#101216",
        "input-cursor-background": "#E0E0E0",
        "input-selection-background": "#3D4A63",
        "screen-selection-background": "#3D4A63",
        "footer-background": "#171A21",
        "footer-key-foreground": "#E0E0E0",
        "footer-description-foreground": "#9298A5",
        "scrollbar": "#343A46",
        "scrollbar-hover": "#5A6272",
        "scrollbar-active": "#9298A5",
        "scrollbar-background": "#101216",
        "scrollbar-background-hover": "#101216",
        "scrollbar-background-active": "#101216",
        "scrollbar-corner-color": "#101216",
    },
)
DAY = Theme(
    name="day",
    primary="#30343C",
    secondary="#585F6B",
    accent="#005F87",
    warning="#5F5F00",
    error="#8A0000",
    success="#005F87",
    foreground="#1C1C1C",
    background="#FBFBFC",
    surface="#F1F3F6",
    panel="#E9ECF1",
    dark=False,
    variables={
        **DAY_COLOURS,
        "border": "#7A828F",
        "border-blurred": "#C3C8D1",
        "block-cursor-background": "#30343C",
        "block-cursor-foreground": "#FBFBFC",
        "input-cursor-background": "#1C1C1C",
        "input-cursor-foreground": "#FBFBFC",
        "input-selection-background": "#BFD3EA",
        "screen-selection-background": "#BFD3EA",
        "footer-background": "#E9ECF1",
        "footer-key-foreground": "#1C1C1C",
        "footer-description-foreground": "#585F6B",
        "scrollbar": "#C3C8D1",
        "scrollbar-hover": "#9AA2AF",
        "scrollbar-active": "#7A828F",
        "scrollbar-background": "#FBFBFC",
        "scrollbar-background-hover": "#FBFBFC",
        "scrollbar-background-active": "#FBFBFC",
        "scrollbar-corner-color": "#FBFBFC",
    },
)
THEMES = (MINT, DAY)


def fallback_colours(*, dark: bool) -> dict[str, str]:
    """Return the colours of speculation for a theme that does not define them."""
    return MINT_COLOURS if dark else DAY_COLOURS
