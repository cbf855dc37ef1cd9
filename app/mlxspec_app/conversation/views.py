"""How a conversation shows the origin of its words: two views, and the inks of one of them.

*calm* is a page to read, with one tint for guessed words. The *X-ray* shows the exact characters
with all data of each token, in one of the inks.

An ink maps a span to the name of a style; the widgets define how each style looks. A new ink is a
function and an entry in `INKS`. Each style that stands out is also bold, italic or underlined, so
that nothing is lost without colour.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import log2
from typing import Literal

from mlxspec_app.conversation.messages import Span


@dataclass(frozen=True)
class View:
    """A view; unless `is_rendered`, it shows the exact characters in place of rendered Markdown."""

    name: str
    meaning: str
    is_rendered: bool = True


CALM = View("calm", "a page to read, with guessed words tinted")
XRAY = View("xray", "the X-ray: the exact text, every token and round", is_rendered=False)
VIEWS = (CALM, XRAY)


def other_view(view: View) -> View:
    """Return the X-ray for the calm view, and the calm view for the X-ray."""
    return XRAY if view is CALM else CALM


def view_named(name: str) -> View:
    """Return the view of this name, else calm."""
    return next((view for view in VIEWS if view.name == name), CALM)


StyleName = Literal[
    "accepted", "corrected", "bonus", "plain", "forced", "kept",
    "step-1", "step-2", "step-3", "step-4", "step-5",
    "over", "far-over", "under", "far-under",
    "text", "head", "model",
    "guess",
]  # fmt: skip
"""The first six show who wrote a token. `step-1` is dim, `step-5` bright. `over`: the drafter was
surer than the target; `under`: less sure. Then kinds of drafters, and the tint of the calm view."""

_SURE = (0.9, 0.7, 0.5, 0.3)  # lower bounds of p for `step-1` to `step-4`
_NEAR, _FAR = 1.0, 3.0  # log2 of p/q: a factor of 2, and of 8
_TEXT_DRAFTERS = ("suffix", "table")


@dataclass(frozen=True)
class Ink:
    """A way to colour a reply; with `bands`, rounds have alternating backgrounds."""

    name: str
    meaning: str
    style_of: Callable[[Span], StyleName]
    bands: bool = True


def _by_confidence(span: Span) -> StyleName:
    if span.target_prob is None:
        return "plain"
    steps: tuple[StyleName, ...] = ("step-1", "step-2", "step-3", "step-4", "step-5")
    return steps[sum(span.target_prob < sure for sure in _SURE)]


def _by_surprise(span: Span) -> StyleName:
    p, q = span.target_prob, span.draft_prob
    if span.kind != "accepted" or not p or not q:
        return "plain"
    ratio = log2(p / q)
    if abs(ratio) < _NEAR:
        return "plain"
    if ratio < 0:
        return "far-over" if ratio <= -_FAR else "over"
    return "far-under" if ratio >= _FAR else "under"


def _by_drafter(span: Span) -> StyleName:
    if span.kind != "accepted" or not span.source:
        return "plain"
    if span.source in _TEXT_DRAFTERS:
        return "text"
    return "model" if span.source == "model" else "head"


INKS = (
    Ink("provenance", "every token by who wrote it", lambda span: span.kind or "plain"),
    Ink(
        "exceptions",
        "only the tokens that the target wrote",
        lambda span: span.kind if span.kind in ("corrected", "bonus") else "plain",
    ),
    Ink("confidence", "the less sure the target was, the brighter", _by_confidence),
    Ink(
        "surprise",
        "underlined: the drafter was surer than the target; italic: less sure (2 times, 8 in bold)",
        _by_surprise,
    ),
    Ink(
        "drafter",
        "drafts from earlier text as they are, from a trained head in italics, from a second "
        "model underlined",
        _by_drafter,
    ),
    Ink("off", "plain text", lambda span: "plain", bands=False),
)


CALM_INK = Ink(
    "calm",
    "guessed words are tinted",
    lambda span: "guess" if span.kind == "accepted" else "plain",
    bands=False,
)
"""What exports show first; a screen has the calm view for it."""


def next_ink(ink: Ink) -> Ink:
    """Return the next ink; after the last one comes the first."""
    return INKS[(INKS.index(ink) + 1) % len(INKS)]


def ink_named(name: str) -> Ink:
    """Return the ink of this name, else the first ink."""
    return next((ink for ink in INKS if ink.name == name), INKS[0])
