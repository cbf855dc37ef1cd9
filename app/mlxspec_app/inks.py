"""Inks: what the colour of a token says.

An ink maps a span to the name of a style; the widgets know how each name looks. A new ink is a
function and an entry in `INKS`. Colour is never alone: a corrected token is bold and underlined,
a bonus token is italic, in every ink that shows them.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from mlxspec_app.messages import Span

StyleName = Literal["accepted", "corrected", "bonus", "plain"]
STYLE_NAMES: tuple[StyleName, ...] = ("accepted", "corrected", "bonus", "plain")


@dataclass(frozen=True)
class Ink:
    """A way to colour a reply.

    Attributes:
        name: The word for it.
        meaning: What it shows, in a few words.
        style_of: Style of a span of a reply.
        bands: Whether rounds get alternating backgrounds.
    """

    name: str
    meaning: str
    style_of: Callable[[Span], StyleName]
    bands: bool = True


def _by_provenance(span: Span) -> StyleName:
    return span.kind or "plain"


def _by_exception(span: Span) -> StyleName:
    return span.kind if span.kind in ("corrected", "bonus") else "plain"


def _all_plain(span: Span) -> StyleName:
    return "plain"


INKS = (
    Ink("provenance", "every token by who wrote it", _by_provenance),
    Ink("exceptions", "only the tokens that the target wrote", _by_exception),
    Ink("off", "plain text", _all_plain, bands=False),
)


def next_ink(ink: Ink) -> Ink:
    """Return the ink after `ink`, the first one after the last."""
    return INKS[(INKS.index(ink) + 1) % len(INKS)]
