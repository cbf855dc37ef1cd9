"""How each kind of token is drawn: its sign, its styles and its meaning, in a legend too."""

from collections.abc import Mapping

from textual.content import Content

from mlxspec_app.conversation.rounds import Mark, MarkedToken

SIGNS: dict[Mark, str] = {
    "accepted": "✓",
    "rejected": "✗",
    "skipped": "·",
    "corrected": "→",
    "bonus": "✚",
    "plain": "",
    "forced": "▸",
    "kept": "=",
}
MARK_STYLES: dict[Mark, str] = {
    "accepted": "$spec-accepted bold",
    "rejected": "$spec-rejected strike",
    "skipped": "$spec-pending strike",
    "corrected": "$spec-corrected bold underline",
    "bonus": "$spec-bonus italic",
    "plain": "$spec-plain",
    "forced": "$spec-step-1 italic",
    "kept": "$spec-muted",
}
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
MEANINGS: dict[Mark, str] = {
    "accepted": "drafted, and the target agreed",
    "corrected": "the target's word where the draft was wrong",
    "bonus": "the target's word after a fully kept draft",
    "plain": "decoded without a draft",
    "rejected": "drafted, and not what the target says",
    "skipped": "drafted after a rejected token, not checked",
    "forced": "all that the grammar of the reply allowed",
    "kept": "from the earlier reply, up to the token you chose",
}
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
        (SIGNS[token.mark], style.replace(" strike", "").replace(" underline", "")),
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
    return [_row(mark, meaning) for mark, meaning in MEANINGS.items() if mark != "forced"]


def _row(mark: Mark, meaning: str) -> Content:
    style = _STYLES.get(mark, MARK_STYLES[mark])
    return Content.assemble(
        (f"{SIGNS[mark] or ' '} ", style.split(" ")[0]),
        (mark, style),
        (" " * (NAME_CELLS - len(mark)) + meaning, MUTED),
    )
