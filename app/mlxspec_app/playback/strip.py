"""The cells of a scrubber: accepted length over a whole recording, and the rounds of each cell.

A cell covers several rounds, or a round several cells, so that the strip is always full. The height
of a cell shows the mean accepted length, so the strip works without colour. The height is the
square root, because a few long rounds would flatten all others. A round that accepted no draft
token is the lowest block, and a plain round leaves a gap.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from mlxspec_app.playback.timeline import RoundMark

CellKind = Literal["accepted", "rejected", "plain"]
_BLOCKS = "▂▃▄▅▆▇█"
_SIGNS: dict[CellKind, str] = {"rejected": "▁", "plain": " "}


@dataclass(frozen=True)
class Cell:
    """One cell of the strip.

    `kind` says whether its rounds accepted draft tokens, rejected all of them, or had no draft.
    `share` is the square root of the mean accepted length as a share of the longest one.
    """

    sign: str
    kind: CellKind
    share: float


def cells(rounds: Sequence[RoundMark], width: int) -> list[Cell]:
    """Return the strip of a recording, `width` cells wide; empty without a round."""
    longest = max((mark.accepted or 0 for mark in rounds), default=0)
    return [_cell(rounds_at(rounds, x, width), longest) for x in range(width if rounds else 0)]


def rounds_at(rounds: Sequence[RoundMark], x: int, width: int) -> Sequence[RoundMark]:
    """Return the rounds that a cell covers, at least one."""
    start = x * len(rounds) // width
    return rounds[start : max(start + 1, (x + 1) * len(rounds) // width)]


def cell_of(rounds_done: int, num_rounds: int, width: int) -> int:
    """Return the cell of the last committed round; the first cell before any round."""
    if not num_rounds:
        return 0
    last = max(0, rounds_done - 1)
    return min(width - 1, ((last + 1) * width - 1) // num_rounds)


def _cell(rounds: Sequence[RoundMark], longest: int) -> Cell:
    lengths = [mark.accepted for mark in rounds if mark.accepted is not None]
    if not lengths:
        return Cell(_SIGNS["plain"], "plain", 0.0)
    share = math.sqrt(sum(lengths) / len(lengths) / longest) if longest else 0.0
    if not share:
        return Cell(_SIGNS["rejected"], "rejected", 0.0)
    return Cell(_BLOCKS[min(6, int(share * 7))], "accepted", share)
