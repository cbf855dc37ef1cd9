"""How far a row's logits depend on how many rows stand beside it.

A text is read row by row, and again in forwards of n rows; both ways commit what they computed,
so what the cache keeps of a rounding is part of it. In exact arithmetic the logits are the same.
Kernels take other paths for other numbers of rows, and round differently on them: that is all
that may part a drafted greedy reply from plain decoding.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import mlx.core as mx
import numpy as np

from mlxspec.decoder import Decoder
from mlxspec.tree import DraftTree

WIDTHS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
"""Numbers of rows that are tried; that of 1 says whether the same forward rounds the same twice."""

NUM_ROWS = max(WIDTHS)
"""Rows of a text."""

NEAR_TIE_DRIFTS = 4
"""Logits are nearly tied up to so many drifts: two move against each other by up to two, and a
text that was not probed may drift twice as far."""


@dataclass(frozen=True)
class WidthDrift:
    """What so many rows in one forward do to each of them.

    Attributes:
        width: Rows in a forward.
        num_rows: Rows that were tried.
        largest: Largest difference of any logit to that of the same row alone; 0 is bit-identical.
        num_flips: Rows whose best token is another one.
    """

    width: int
    num_rows: int
    largest: float
    num_flips: int

    def __add__(self, other: "WidthDrift") -> "WidthDrift":
        """Return what both saw of one width."""
        return WidthDrift(
            self.width,
            self.num_rows + other.num_rows,
            max(self.largest, other.largest),
            self.num_flips + other.num_flips,
        )


@dataclass(frozen=True)
class Drift:
    """What was seen at all widths.

    Attributes:
        widths: One each.
        smallest_gap: Smallest difference of the two best logits of any row alone.
    """

    widths: tuple[WidthDrift, ...]
    smallest_gap: float

    @property
    def largest(self) -> float:
        """The largest drift of all widths, in logits."""
        return max(width.largest for width in self.widths)

    @property
    def is_zero(self) -> bool:
        """Whether rows are bit-identical whatever stands beside them."""
        return self.largest == 0

    @property
    def near_tie(self) -> float:
        """Tokens whose logits differ by no more are nearly tied: rounding may decide."""
        return NEAR_TIE_DRIFTS * self.largest


@dataclass(frozen=True)
class Text:
    """What is read.

    Attributes:
        prompt: Read at once before, but for its last token.
        rows: What is read in forwards of some width: that token and what follows.
    """

    prompt: tuple[int, ...]
    rows: tuple[int, ...]

    @staticmethod
    def of(prompt: Sequence[int], reply: Sequence[int], room: int | None) -> "Text":
        """Return the text of a reply; one that is short is repeated.

        Args:
            prompt: Tokens before it, at least one.
            reply: Its tokens, at least one.
            room: Tokens that the context takes in all; None for any number.
        """
        num_rows = NUM_ROWS if room is None else min(NUM_ROWS, room - len(prompt) + 1)
        repeated = [prompt[-1], *reply] * num_rows
        return Text(tuple(prompt), tuple(repeated[:num_rows]))


def measure_drift(target: Decoder, texts: Iterable[Text]) -> Drift:
    """Return the drift over some texts; the target's history is another afterwards.

    Args:
        target: Runs the forwards.
        texts: What is read, at least one.
    """
    seen: dict[int, WidthDrift] = {}
    gaps = []
    for text in texts:
        alone = _logits(target, text, 1)
        second, first = np.partition(alone, -2, axis=-1)[:, -2:].T
        gaps.append(float((first - second).min()))
        for width in WIDTHS:
            if width <= len(text.rows):
                found = _compared(alone, _logits(target, text, width), width)
                seen[width] = seen[width] + found if width in seen else found
    return Drift(tuple(seen.values()), min(gaps))


def _logits(target: Decoder, text: Text, width: int) -> np.ndarray:
    """Return (n, V) float32 logits of the rows of a text that fill whole forwards."""
    target.reset()
    target.observe(text.prompt[:-1])
    rows = []
    for start in range(0, len(text.rows) - width + 1, width):
        tokens = mx.array(list(text.rows[start : start + width]), mx.int32)
        logits = target.logits(target.forward_tree(DraftTree.chain(tokens)))
        rows.append(np.array(logits.astype(mx.float32)))
        target.commit(range(width))
    return np.concatenate(rows)


def _compared(alone: np.ndarray, among: np.ndarray, width: int) -> WidthDrift:
    same_rows = alone[: len(among)]
    largest = float(np.abs(among - same_rows).max())
    num_flips = int((among.argmax(axis=-1) != same_rows.argmax(axis=-1)).sum())
    return WidthDrift(width, len(among), largest, num_flips)
