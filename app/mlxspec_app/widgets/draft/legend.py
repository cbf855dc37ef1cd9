"""The legend of colours and signs, for the first page and the help page."""

from textual.content import Content

from mlxspec_app.conversation.rounds import Mark
from mlxspec_app.widgets.draft.lane_rows import MARK_STYLES, SIGNS

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
_EMITTED: tuple[Mark, ...] = ("accepted", "corrected", "bonus", "plain")
_STYLES: dict[Mark, str] = {"accepted": "$spec-accepted", "skipped": "$spec-pending"}
NAME_CELLS = 12


GUESSED, OWN = "guessed", "own"
PLAIN_WORDS = (
    (OWN, "$spec-plain", "the model's own word"),
    (GUESSED, "$spec-guess", "the drafter guessed this word, and the model agreed"),
)
"""Name, style and meaning of a word that was not guessed, and of one that was."""


def plain_legend() -> list[Content]:
    """Return what the colours mean outside the X-ray, and the key that opens the X-ray."""
    rows = [
        Content.assemble((name.ljust(NAME_CELLS), style), (meaning, "$spec-muted"))
        for name, style, meaning in reversed(PLAIN_WORDS)
    ]
    more = ("F2".ljust(NAME_CELLS), "$foreground"), ("the X-ray: all of it", "$spec-muted")
    return [*rows, Content.assemble(*more)]


def legend(*, emitted_only: bool = False) -> list[Content]:
    """Return a row for each mark; `emitted_only` leaves out tokens that never become text."""
    marks = _EMITTED if emitted_only else (mark for mark in MEANINGS if mark != "forced")
    return [_row(mark, MEANINGS[mark]) for mark in marks]


def _row(mark: Mark, meaning: str) -> Content:
    style = _STYLES.get(mark, MARK_STYLES[mark])
    return Content.assemble(
        (f"{SIGNS[mark] or ' '} ", style.split(" ")[0]),
        (mark, style),
        (" " * (NAME_CELLS - len(mark)) + meaning, "$spec-muted"),
    )
