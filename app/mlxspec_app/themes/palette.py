"""A theme made of a palette: the colours of tokens, and a grey frame around them.

The colours of tokens were searched inside the xterm-256 cube for the largest smallest difference
between any two of them as seen with normal, protan, deutan and tritan vision, at a contrast of
4.5 or more on every background they are drawn on. The frame of the app is kept grey, so that a
colour on the screen always speaks of a token.

A terminal of 256 colours (Terminal.app before macOS 26) has no greys but those of a ramp, ten
levels apart. The frame has equal channels, which Rich takes for grey and gives an entry of the
ramp; the least tint would make a dark grey black or navy, and a light one cyan. Two greys that are
seen side by side are ten levels apart or more, so each has its own entry.
"""

from dataclasses import dataclass

from textual.theme import Theme

_PREFIX = "spec-"


@dataclass(frozen=True)
class Palette:
    """The colours of a theme, each as #RRGGBB.

    Attributes:
        plain: Text that no draft had a part in.
        accepted: Drafted tokens that were kept.
        corrected: The target's token in the place of a rejected one.
        bonus: The target's token after a fully kept draft.
        rejected: Drafted tokens that were not kept, and errors.
        muted: What is said beside; also drafts that wait for their verdict.
        line: Rules, and the background of what is chosen.
        bands: Backgrounds of odd and of even rounds.
        steps: Five shades of text from quiet to loud.
        background: The page.
        surface: What lies on the page.
        panel: The bars at its edges.
        strong: The frame's most visible grey.
        border: Edges of what takes text.
        selection: Background of selected text.
    """

    plain: str
    accepted: str
    corrected: str
    bonus: str
    rejected: str
    muted: str
    line: str
    bands: tuple[str, str]
    steps: tuple[str, str, str, str, str]
    background: str
    surface: str
    panel: str
    strong: str
    border: str
    selection: str


def make_theme(name: str, palette: Palette, *, dark: bool) -> Theme:
    """Return the theme of a palette."""
    return Theme(
        name=name,
        primary=palette.strong,
        secondary=palette.muted,
        accent=palette.accepted,
        warning=palette.corrected,
        error=palette.rejected,
        success=palette.accepted,
        foreground=palette.plain,
        background=palette.background,
        surface=palette.surface,
        panel=palette.panel,
        dark=dark,
        variables=_tokens(palette) | _frame(palette),
    )


def colours_of(theme: Theme) -> dict[str, str]:
    """Return the colours of speculation of a theme, by variable."""
    return {name: value for name, value in theme.variables.items() if name.startswith(_PREFIX)}


def _tokens(palette: Palette) -> dict[str, str]:
    named = {
        "plain": palette.plain,
        "accepted": palette.accepted,
        "corrected": palette.corrected,
        "bonus": palette.bonus,
        "rejected": palette.rejected,
        "pending": palette.muted,
        "muted": palette.muted,
        "line": palette.line,
        "band-a": palette.bands[0],
        "band-b": palette.bands[1],
        **{f"step-{step}": colour for step, colour in enumerate(palette.steps, 1)},
    }
    return {_PREFIX + name: colour for name, colour in named.items()}


def _frame(palette: Palette) -> dict[str, str]:
    return {
        "border": palette.border,
        "border-blurred": palette.line,
        "block-cursor-background": palette.strong,
        "block-cursor-foreground": palette.background,
        "input-cursor-background": palette.plain,
        "input-cursor-foreground": palette.background,
        "input-selection-background": palette.selection,
        "screen-selection-background": palette.selection,
        "footer-background": palette.surface,
        "footer-key-foreground": palette.plain,
        "footer-description-foreground": palette.muted,
        "scrollbar": palette.line,
        "scrollbar-hover": palette.border,
        "scrollbar-active": palette.muted,
        "scrollbar-background": palette.background,
        "scrollbar-background-hover": palette.background,
        "scrollbar-background-active": palette.background,
        "scrollbar-corner-color": palette.background,
    }
