"""A theme from a palette: the colours of tokens, and a grey frame around them.

The colours of tokens come from a search inside the xterm-256 cube. It maximised the smallest
difference between any two of them in normal, protan, deutan and tritan vision, at a contrast of at
least 4.5 on every background. The frame of the app is grey, so that a colour always means a token.

The only greys of a terminal with 256 colours (Terminal.app before macOS 26) are a ramp in steps of
ten levels. The frame has equal channels, which Rich maps to the ramp; with any tint it would map a
dark grey to black or navy, and a light one to cyan. Two greys side by side differ by ten levels or
more, so each has its own entry in the ramp.
"""

from dataclasses import dataclass

from textual.theme import Theme

_PREFIX = "spec-"


@dataclass(frozen=True)
class Palette:
    """The colours of a theme, each as #RRGGBB.

    Attributes:
        plain: Text without a draft.
        loud: Headings, strong words and keywords of code.
        guesses: The tint of guessed words: for text, for loud and for quiet text.
        accepted: Accepted draft tokens.
        corrected: The target's token instead of a rejected one.
        bonus: The target's token after a fully accepted draft.
        rejected: Rejected draft tokens, and errors.
        muted: Notes; also drafts without their verdict.
        line: Rules, and the background of the chosen row.
        bands: Backgrounds of odd and of even rounds.
        steps: Five shades of text from weak to strong.
        background: The page.
        surface: Widgets on the page.
        panel: The bars at the edges of the page.
        strong: The most visible grey of the frame.
        border: Borders of text fields.
        selection: Background of selected text.
    """

    plain: str
    loud: str
    guesses: tuple[str, str, str]
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
    """Return the colours of tokens of a theme, by variable."""
    return {name: value for name, value in theme.variables.items() if name.startswith(_PREFIX)}


def _tokens(palette: Palette) -> dict[str, str]:
    named = {
        "plain": palette.plain,
        "loud": palette.loud,
        "guess": palette.guesses[0],
        "guess-loud": palette.guesses[1],
        "guess-quiet": palette.guesses[2],
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
