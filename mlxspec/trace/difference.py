"""Whether two replies are the same, where they part, and whether rounding explains it.

Kernels round a row differently when the forward has other rows too; the change of a logit is its
drift. Two tokens are a near-tie if their logits differ by at most `NEAR_TIE_DRIFTS` times the
drift, measured on this machine with this model (see `measure/drift.py`). In half precision the
drift is at least about a hundred times that of float32. Without drift there is no near-tie.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import compress, count
from operator import ne

NEAR_TIE_DRIFTS = 4
"""Largest gap of a near-tie, in drifts. Two logits can move in opposite directions, which gives 2;
a text other than the measured one may drift twice as far, which gives 4."""


def near_tie_of(drift: float) -> float:
    """Return the largest gap between two logits that rounding explains."""
    return NEAR_TIE_DRIFTS * drift


def token_hash(tokens: Sequence[int]) -> str:
    """Return the SHA-256, in hex, of token ids as 4 bytes each, little-endian and signed."""
    return sha256(struct.pack(f"<{len(tokens)}i", *tokens)).hexdigest()


def common_length(first: Sequence[object], second: Sequence[object]) -> int:
    """Return the length of the common prefix of two sequences."""
    differences = compress(count(), map(ne, first, second))  # fast: a chat has 100,000 tokens
    return next(differences, min(len(first), len(second)))


@dataclass(frozen=True)
class Difference:
    """The first difference between a greedy reply and another.

    Logits are the target's, after bias and penalties, read with no other rows in the forward; None
    if one reply has ended.
    """

    index: int  # number of tokens before it, which are the same
    token: int | None  # the token of the reply there, or None if the reply has ended
    expected: int | None  # the token of the other reply, or None likewise
    gap: float | None  # the best logit there minus the lower one of the two
    near_tie: float = 0.0  # largest gap that rounding explains there; 0 for none
    token_logit: float | None = None
    expected_logit: float | None = None

    @property
    def is_near_tie(self) -> bool:
        """Whether rounding explains the choice: both tokens are near the target's best logit.

        It never explains the end of a reply, nor, without drift, a choice between equal logits.
        """
        return self.gap is not None and 0 < self.near_tie >= self.gap

    @property
    def verdict(self) -> str:
        """Whether rounding explains the gap, as text."""
        name = "a near-tie" if self.is_near_tie else "NOT A NEAR-TIE"
        if self.gap is None:
            return name
        if not self.near_tie:
            return f"{name}, as rounding changes nothing here"
        return f"{name}, as rounding explains up to {self.near_tie:.2g} here"

    def describe(self) -> str:
        if self.gap is None:
            return f"parts after {self.index} tokens, where one of the two ends"
        return f"parts after {self.index} tokens, top-2 gap {self.gap:.2g}: {self.verdict}"


@dataclass(frozen=True)
class Proof:
    """How many tokens of a greedy reply are those of plain decoding, which wrote it again."""

    num_tokens: int
    num_same: int  # number of equal tokens, counted from the first token
    difference: Difference | None = None  # None if identical, or if the comparison was stopped
    drafted: str = ""  # text of the token there with drafts; "" for none
    plain: str = ""  # text of the token there without drafts; "" for none

    @property
    def is_identical(self) -> bool:
        return self.num_same == self.num_tokens and self.difference is None

    def describe(self) -> str:
        if self.is_identical:
            return f"identical to plain decoding: {self.num_tokens} of {self.num_tokens} tokens"
        found = self.difference
        if found is None:
            return f"the same for {self.num_same} tokens of {self.num_tokens}, then stopped"
        if found.gap is None:
            return f"the same for {self.num_same} tokens, then one of the two ends: {found.verdict}"
        return (
            f"the same for {self.num_same} tokens of {self.num_tokens}, then {self.drafted!r} "
            f"(logit {found.token_logit:.4f}) with drafts and {self.plain!r} "
            f"({found.expected_logit:.4f}) without: a gap of {found.gap:.2g}, {found.verdict}"
        )
