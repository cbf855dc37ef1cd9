"""The two rows of the draft lane: the draft tokens of the last round and their verdicts."""

from collections.abc import Mapping

from textual.content import Content

from mlxspec.trace.events import DraftVerified
from mlxspec_app.conversation.figures import prob
from mlxspec_app.conversation.rounds import Mark, MarkedToken, Position, Round, positions

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
_MOST_SIBLINGS = 2


def marked(token: MarkedToken, styles: Mapping[Mark, str] = MARK_STYLES) -> Content:
    """Return a token with the sign of its verdict; the sign is not struck through or underlined."""
    style = styles[token.mark]
    return Content.assemble(
        (SIGNS[token.mark], style.replace(" strike", "").replace(" underline", "")),
        (token.label, style),
    )


def token_row(
    round_: Round, width: int, *, probs: bool, styles: Mapping[Mark, str] = MARK_STYLES
) -> tuple[Content, Content]:
    """Return the tokens of a round and, aligned below them, q/p if `probs` is set."""
    tokens, figures = Content(""), Content("")
    for position in positions(round_):
        shown = _position_cells(position, styles)
        below = Content.styled(_probs(position) if probs else "", MUTED)
        cells = max(shown.cell_length, below.cell_length)
        if tokens.cell_length + cells > width:
            tokens += Content.styled("…", MUTED)
            break
        tokens += shown.pad_right(cells - shown.cell_length + 2)
        figures += below.pad_right(cells - below.cell_length + 2)
    return tokens, figures


def outcome(round_: Round, *, is_pending: bool = False) -> Content:
    """Return the number of draft nodes, and of accepted and other emitted tokens."""
    drafted = len(round_.nodes)
    own = len(round_.verdict.emit) - round_.accepted
    if not drafted and not is_pending:
        return Content.styled("no draft", MUTED)
    shape = f"{drafted} nodes, depth {round_.depth}" if round_.is_tree else f"k={drafted}"
    kept = (
        ("pending", "$foreground")
        if is_pending
        else (f"kept {round_.accepted}", "$foreground bold")
    )
    more = (f" +{own}" if own > 0 else "", "$foreground bold")
    return Content.assemble((f"{shape}  ", MUTED), kept, more)


def guesses(round_: Round) -> Content:
    """Return in plain words how many guesses of a round were right."""
    drafted = round_.depth if round_.is_tree else len(round_.nodes)
    if not drafted:
        return Content.styled("no guess", MUTED)
    return Content.styled(f"{round_.accepted} of {drafted} right", MUTED)


def timing(round_: Round, *, is_pending: bool = False) -> Content:
    """Return the milliseconds of drafting and verification."""
    verdict = round_.verdict
    if not isinstance(verdict, DraftVerified) or round_.draft is None:
        return Content.styled(f"target {verdict.ms:.1f} ms", MUTED)
    verified = "" if is_pending else f" │ verify {verdict.ms:.1f} ms"
    return Content.styled(f"draft {round_.draft.ms:.1f} ms{verified}", MUTED)


def _position_cells(position: Position, styles: Mapping[Mark, str]) -> Content:
    losers = [marked(token, styles) for token in position if token.mark == "rejected"]
    hidden = len(losers) - _MOST_SIBLINGS
    if hidden > 0:
        losers[_MOST_SIBLINGS:] = [Content.styled(f"+{hidden}", MUTED)]
    winners = [marked(token, styles) for token in position if token.mark != "rejected"]
    in_order = winners + losers if position[0].mark == "accepted" else losers + winners
    return Content(" ").join(in_order)


def _probs(position: Position) -> str:
    """Return q/p of an accepted token, or q of a rejected one and p of the corrected token."""
    first, last = position[0], position[-1]
    if first.mark == "accepted":
        return f"{prob(first.draft_prob)}/{prob(first.target_prob)}".strip("/")
    if first.mark == "rejected" and last.mark in ("corrected", "bonus"):
        return f"{prob(first.draft_prob)} → {prob(last.target_prob)}"
    return prob(first.draft_prob) or prob(first.target_prob)
