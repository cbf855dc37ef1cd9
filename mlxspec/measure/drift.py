"""How far a row's logits depend on how many rows stand beside it.

In exact arithmetic they do not. Kernels take other paths for other numbers of rows, and round
differently on them: that is all that may part a drafted greedy reply from plain decoding. Of a
text two things are measured, and in both what the cache keeps of a rounding is part of it.

`measure_drift` is what drafts meet: forwards of n rows as a tree. `rounding` is what may excuse a
difference: the rows are read n at a time, as a prompt is. No draft and no tree takes part, so a
mistake in these cannot excuse itself; nor can what moves logits further than rounding ever does.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import mlx.core as mx
import numpy as np

from mlxspec.drafts.tree import DraftTree
from mlxspec.target.decoder import Decoder
from mlxspec.trace.near_tie import near_tie_of

WIDTHS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
"""Numbers of rows that are tried; that of 1 says whether the same forward rounds the same twice."""

NUM_ROWS = max(WIDTHS)
"""Rows of a text."""

_READING_WIDTHS = (2, 4, 8, 16, 32)

_MOST_ROUNDING = 0.25
"""Of what the best token has before the average one: what moves a logit further is a mistake."""


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
        rounding: Largest difference that rounding alone made, by `rounding`.
    """

    widths: tuple[WidthDrift, ...]
    smallest_gap: float
    rounding: float

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
        return near_tie_of(self.rounding)


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
    def ending(tokens: Sequence[int], room: int | None) -> "Text":
        """Return the text whose rows are the last of some tokens; `room` as in `of`."""
        cut = max(len(tokens) - NUM_ROWS + 1, 1)
        return Text.of(tokens[:cut], tokens[cut:], room)

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
    gaps, roundings = [], []
    for text in texts:
        roundings.append(rounding(target, text))
        alone = _logits(target, text, 1)
        second, first = np.partition(alone, -2, axis=-1)[:, -2:].T
        gaps.append(float((first - second).min()))
        for width in WIDTHS:
            if width <= len(text.rows):
                found = _compared(alone, _logits(target, text, width), width)
                seen[width] = seen[width] + found if width in seen else found
    return Drift(tuple(seen.values()), min(gaps), max(roundings))


def near_tie_after(target: Decoder, tokens: Sequence[int], room: int | None = None) -> float:
    """Return the largest gap that rounding explains after some tokens, measured on the last ones.

    That takes some sixty forwards of few rows; the target is left as it is.

    Args:
        target: Says of which model and with what kind of cache.
        tokens: What was read, at least one token.
        room: Tokens that the context takes in all; None for any number.
    """
    return near_tie_of(rounding(target, Text.ending(tokens, room)))


def rounding(target: Decoder, text: Text) -> float:
    """Return by how much a logit moves when rows are read beside others; 0 if by far too much.

    Args:
        target: As in `near_tie_after`.
        text: What is read, in a cache of its own.
    """
    reader = Decoder(target.model, target.cache.empty_like())
    reader.observe(text.prompt[:-1])
    alone = _read(reader, text, 1)
    widths = [width for width in _READING_WIDTHS if width <= len(text.rows)]
    largest = max((_largest(alone, _read(reader, text, width)) for width in widths), default=0.0)
    is_rounding = largest < _MOST_ROUNDING * np.median(alone.max(axis=-1) - alone.mean(axis=-1))
    return largest if is_rounding else 0.0


def _read(reader: Decoder, text: Text, width: int) -> np.ndarray:
    """Return what `_logits` does, of rows that are read in a line instead of a tree."""
    reader.rollback_to(len(text.prompt) - 1)
    logits = []
    for start in range(0, len(text.rows) - width + 1, width):
        rows = text.rows[start : start + width]
        logits.append(_numbers(reader.logits(reader.extend_chain(mx.array(rows, mx.int32)))))
        reader.commit_chain(rows)
    return np.concatenate(logits)


def _logits(target: Decoder, text: Text, width: int) -> np.ndarray:
    """Return (n, V) float32 logits of the rows of a text that fill whole forwards."""
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


def _compared(alone: np.ndarray, among: np.ndarray, width: int) -> WidthDrift:
    flips = among.argmax(axis=-1) != alone[: len(among)].argmax(axis=-1)
    return WidthDrift(width, len(among), _largest(alone, among), int(flips.sum()))
