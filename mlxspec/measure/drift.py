"""How far a row's logits depend on the number of rows in the same forward.

Kernels compute other numbers of rows in another order and round differently: only this may make a
drafted greedy reply differ from plain decoding. `measure_drift` measures forwards of n rows as a
tree, as drafts have. `rounding` measures what may excuse a difference: the target reads n rows at a
time, as in a prefill. No draft and no tree is involved, so a mistake in these cannot excuse itself.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import mlx.core as mx
import numpy as np

from mlxspec.decoder.decoder import Decoder
from mlxspec.drafts.tree import DraftTree
from mlxspec.trace.difference import near_tie_of

WIDTHS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
"""Widths of the forwards; 1 shows whether the same forward rounds the same way twice."""

NUM_ROWS = max(WIDTHS)  # that are compared, per text
_READING_WIDTHS = (2, 4, 8, 16, 32)
_MOST_ROUNDING = 0.25  # of the distance between best and mean logit: a larger change is a mistake


@dataclass(frozen=True)
class WidthDrift:
    """The drift of rows in forwards of `width` rows."""

    width: int
    num_rows: int
    largest: float  # difference of any logit to that of the same row alone; 0 is bit-identical
    num_flips: int  # rows whose best token changed

    def __add__(self, other: "WidthDrift") -> "WidthDrift":
        return WidthDrift(
            self.width,
            self.num_rows + other.num_rows,
            max(self.largest, other.largest),
            self.num_flips + other.num_flips,
        )


@dataclass(frozen=True)
class Drift:
    """The drift at all widths, in logits."""

    DERIVED: ClassVar = ("largest", "is_zero", "near_tie")

    widths: tuple[WidthDrift, ...]
    smallest_gap: float  # between the two best logits of any row alone
    rounding: float  # see the function `rounding`

    @property
    def largest(self) -> float:
        return max(width.largest for width in self.widths)

    @property
    def is_zero(self) -> bool:
        return self.largest == 0

    @property
    def near_tie(self) -> float:
        """Largest gap between two logits that counts as a near-tie."""
        return near_tie_of(self.rounding)


@dataclass(frozen=True)
class Text:
    """The tokens on which drift is measured."""

    prompt: tuple[int, ...]  # prefilled up to its last token
    rows: tuple[int, ...]  # the last token of the prompt and the tokens after it

    @staticmethod
    def ending(tokens: Sequence[int], room: int | None) -> "Text":
        """Return the text whose rows are the last tokens of a sequence; `room` as in `of`."""
        cut = max(len(tokens) - NUM_ROWS + 1, 1)
        return Text.of(tokens[:cut], tokens[cut:], room)

    @staticmethod
    def of(prompt: Sequence[int], reply: Sequence[int], room: int | None) -> "Text":
        """Return the text of a reply, repeated if it is short, in a context of `room` tokens."""
        num_rows = NUM_ROWS if room is None else min(NUM_ROWS, room - len(prompt) + 1)
        repeated = [prompt[-1], *reply] * num_rows
        return Text(tuple(prompt), tuple(repeated[:num_rows]))


def measure_drift(target: Decoder, texts: Iterable[Text]) -> Drift:
    """Return the drift over one or more texts; the content of the target's cache changes."""
    seen: dict[int, WidthDrift] = {}
    gaps, roundings = [], []
    for text in texts:
        roundings.append(rounding(target, text))
        alone = _logits(target, text, 1)
        second, first = np.partition(alone, -2, axis=-1)[:, -2:].T
        gaps.append(float((first - second).min()))
        for width in WIDTHS:
            if width <= len(text.rows):
                among = _logits(target, text, width)
                flips = among.argmax(axis=-1) != alone[: len(among)].argmax(axis=-1)
                largest = _largest(alone, among)
                found = WidthDrift(width, len(among), largest, int(flips.sum()))
                seen[width] = seen[width] + found if width in seen else found
    return Drift(tuple(seen.values()), min(gaps), max(roundings))


def near_tie_after(target: Decoder, tokens: Sequence[int], room: int | None = None) -> float:
    """Return the largest gap that rounding explains after some tokens, measured on the last ones.

    This takes about sixty forwards of few rows; the target does not change.
    """
    return near_tie_of(rounding(target, Text.ending(tokens, room)))


def rounding(target: Decoder, text: Text) -> float:
    """Return the largest change of a logit when rows are read n at a time; 0 if it is a mistake.

    A separate cache reads the text, so the target does not change.
    """
    reader = target.apart()
    reader.observe(text.prompt[:-1])
    alone = _read(reader, text, 1)
    widths = [width for width in _READING_WIDTHS if width <= len(text.rows)]
    largest = max((_largest(alone, _read(reader, text, width)) for width in widths), default=0.0)
    # 0 excuses no difference: a mistake in the kernels must not pass as rounding
    is_rounding = largest < _MOST_ROUNDING * np.median(alone.max(axis=-1) - alone.mean(axis=-1))
    return largest if is_rounding else 0.0


def _read(reader: Decoder, text: Text, width: int) -> np.ndarray:
    """Return the same as `_logits`, but read the rows as a prompt instead of a tree."""
    reader.rollback_to(len(text.prompt) - 1)
    logits = []
    for start in range(0, len(text.rows) - width + 1, width):
        rows = text.rows[start : start + width]
        logits.append(_numbers(reader.logits(reader.extend_chain(mx.array(rows, mx.int32)))))
        reader.commit_chain(rows)
    return np.concatenate(logits)


def _logits(target: Decoder, text: Text, width: int) -> np.ndarray:
    """Return (n, V) float32 logits of a text's rows; only full forwards of `width` rows count."""
    target.reset()
    target.observe(text.prompt[:-1])
    rows = []
    for start in range(0, len(text.rows) - width + 1, width):
        tokens = mx.array(list(text.rows[start : start + width]), mx.int32)
        rows.append(_numbers(target.logits(target.forward_tree(DraftTree.chain(tokens)))))
        target.commit(range(width))
    return np.concatenate(rows)


def _numbers(logits: mx.array) -> np.ndarray:
    return np.array(logits.astype(mx.float32))


def _largest(alone: np.ndarray, among: np.ndarray) -> float:
    return float(np.abs(among - alone[: len(among)]).max())
