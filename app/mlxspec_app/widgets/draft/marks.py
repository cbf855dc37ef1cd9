"""How each kind of token is drawn: its sign, its styles and its meaning, in a legend too."""

from collections.abc import Mapping
from typing import NamedTuple

from textual.content import Content

from mlxspec_app.conversation.rounds import Mark, MarkedToken


class Kind(NamedTuple):
    """How a kind of token is drawn, and what it means."""

    sign: str
    style: str
    meaning: str


KINDS: dict[Mark, Kind] = {
    "accepted": Kind("✓", "$spec-accepted bold", "drafted, and the target agreed"),
    "corrected": Kind(
        "→", "$spec-corrected italic underline", "the target's word where the draft was wrong"
    ),
    "bonus": Kind("✚", "$spec-bonus italic", "the target's word after a fully kept draft"),
    "plain": Kind("", "$spec-plain", "decoded without a draft"),
    "rejected": Kind("✗", "$spec-pending strike", "drafted, and not what the target says"),
    "skipped": Kind("·", "$spec-pending strike", "drafted after a rejected token, not checked"),
    "forced": Kind(
        "▸", "$spec-step-1 italic", "all that the grammar or the limit of reasoning allowed"
    ),
    "kept": Kind("=", "$spec-muted", "from the earlier reply, up to the token you chose"),
}
MARK_STYLES: dict[Mark, str] = {mark: kind.style for mark, kind in KINDS.items()}
QUIET_STYLES: dict[Mark, str] = {
    "accepted": "$spec-guess",
    "rejected": "$spec-muted strike",
    "skipped": "$spec-muted strike",
    "corrected": "$spec-plain",
    "bonus": "$spec-plain",
    "plain": "$spec-plain",
    "forced": "$spec-plain",
    "kept": "$spec-plain",
}
"""Styles outside the X-ray: right guesses have a tint, and are neither bold nor underlined."""
MUTED = "$spec-muted"
_STYLES: dict[Mark, str] = {"accepted": "$spec-accepted", "skipped": "$spec-pending"}
NAME_CELLS = 12
PLAIN_WORDS = (
    ("own", "$spec-plain", "the model's own word"),
    ("guessed", "$spec-guess", "the drafter guessed this word, and the model agreed"),
)
"""Name, style and meaning of a word that was not guessed, and of one that was."""


def marked(token: MarkedToken, styles: Mapping[Mark, str] = MARK_STYLES) -> Content:
    """Return a token with the sign of its verdict; the sign is not struck through or underlined."""
    style = styles[token.mark]
    return Content.assemble(
        (KINDS[token.mark].sign, style.replace(" strike", "").replace(" underline", "")),
        (token.label, style),
    )


def plain_legend() -> list[Content]:
    """Return what the colours mean outside the X-ray, and the key that opens the X-ray."""
    rows = [
        Content.assemble((name.ljust(NAME_CELLS), style), (meaning, MUTED))
        for name, style, meaning in reversed(PLAIN_WORDS)
    ]
    more = ("F2".ljust(NAME_CELLS), "$foreground"), ("the X-ray: all of it", MUTED)
    return [*rows, Content.assemble(*more)]


def legend() -> list[Content]:
    """Return a row for each mark."""
    return [_row(mark, kind) for mark, kind in KINDS.items() if mark != "forced"]


def _row(mark: Mark, kind: Kind) -> Content:
    style = _STYLES.get(mark, kind.style)
    return Content.assemble(
        (f"{kind.sign or ' '} ", style.split(" ")[0]),
        (mark, style),
        (" " * (NAME_CELLS - len(mark)) + kind.meaning, MUTED),
    )
