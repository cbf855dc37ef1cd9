"""The look of each style of a token, on the screen and in exports, and what it means in each ink.

A look is a colour of the theme with bold, italic or underline, so that it is told apart without
colour too.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Look:
    """The look of a token; `colour` names a colour of the theme, without its prefix."""

    colour: str
    bold: bool = False
    italic: bool = False
    underline: bool = False

    @property
    def css(self) -> str:
        """The declarations of a web page that uses the colours as variables."""
        css = f"color:var(--{self.colour});"
        css += "font-weight:700;" if self.bold else ""
        css += "font-style:italic;" if self.italic else ""
        return css + ("text-decoration-line:underline;" if self.underline else "")

    @property
    def weight(self) -> str:
        """The look without its colour, as Textual writes it; "" for a plain one."""
        parts = {"bold": self.bold, "italic": self.italic, "underline": self.underline}
        return " ".join(name for name, is_set in parts.items() if is_set)


LOOKS: dict[str, Look] = {
    "plain": Look("plain"),
    "accepted": Look("accepted"),
    "corrected": Look("corrected", italic=True, underline=True),
    "bonus": Look("bonus", italic=True),
    "forced": Look("step-1", italic=True),
    "kept": Look("muted"),
    "step-1": Look("step-1"),
    "step-2": Look("step-2"),
    "step-3": Look("step-3"),
    "step-4": Look("step-4", bold=True),
    "step-5": Look("step-5", bold=True, underline=True),
    "over": Look("corrected", underline=True),
    "far-over": Look("corrected", bold=True, underline=True),
    "under": Look("bonus", italic=True),
    "far-under": Look("bonus", bold=True, italic=True),
    "text": Look("accepted"),
    "head": Look("bonus", italic=True),
    "model": Look("corrected", underline=True),
    "guess": Look("guess"),
}
"""By `StyleName`."""

_CORRECTED = ("corrected", "corrected", "the model's word where the draft was wrong")
_BONUS = ("bonus", "bonus", "the model's word after a fully kept draft")
LEGENDS: dict[str, tuple[tuple[str, str, str], ...]] = {
    "calm": (
        ("guess", "guessed", "a drafter guessed it, and the model agreed"),
        ("plain", "own", "the model's own word"),
    ),
    "provenance": (
        ("accepted", "accepted", "drafted, and the model agreed"),
        _CORRECTED,
        _BONUS,
        ("plain", "plain", "decoded without a draft"),
        ("kept", "kept", "from the earlier reply, up to the chosen token"),
    ),
    "exceptions": (_CORRECTED, _BONUS, ("plain", "all others", "")),
    "confidence": (
        ("step-1", "p ≥ .9", ""),
        ("step-2", "≥ .7", ""),
        ("step-3", "≥ .5", ""),
        ("step-4", "≥ .3", ""),
        ("step-5", "below", "how sure the model was of the word"),
    ),
    "surprise": (
        ("over", "q > 2p", "the draft was surer than the model"),
        ("far-over", "q > 8p", ""),
        ("under", "p > 2q", "the model was surer than the draft"),
        ("far-under", "p > 8q", ""),
    ),
    "drafter": (
        ("text", "earlier text", ""),
        ("head", "trained head", ""),
        ("model", "draft model", ""),
    ),
    "off": (("plain", "the exact text", ""),),
}
"""By ink: (style, its name, its meaning, which the screen has no room for)."""
