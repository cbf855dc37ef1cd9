"""The first difference of two replies: both tokens, and whether rounding explains it."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import compress, count
from operator import ne

from mlxspec.trace.near_tie import is_near_tie, verdict_on


def common_length(first: Sequence[object], second: Sequence[object]) -> int:
    """Return the length of the common prefix of two sequences."""
    differences = compress(count(), map(ne, first, second))  # fast: a chat has 100,000 tokens
    return next(differences, min(len(first), len(second)))


@dataclass(frozen=True)
class Difference:
    """The first difference between a greedy reply and another.

    Attributes:
        index: Number of tokens before it, which are the same.
        token: The token of the reply there, or None if the reply has ended.
        expected: The token of the other reply, or None likewise.
        gap: The target's best logit there minus the lower one of the two; None if one reply has
            ended.
        near_tie: Largest gap that rounding explains there; 0 for none.
        token_logit: The target's logit of the token, after bias and penalties, read with no other
            rows in the forward; None if one reply has ended.
        expected_logit: That of the other token.
    """

    index: int
    token: int | None
    expected: int | None
    gap: float | None
    near_tie: float = 0.0
    token_logit: float | None = None
    expected_logit: float | None = None

    @property
    def is_near_tie(self) -> bool:
        """Whether rounding explains the choice: both tokens are near the target's best logit."""
        return is_near_tie(self.gap, self.near_tie)

    def describe(self) -> str:
        """Return the difference in one line."""
        if self.gap is None:
            return f"parts after {self.index} tokens, where one of the two ends"
        verdict = verdict_on(self.gap, self.near_tie)
        return f"parts after {self.index} tokens, top-2 gap {self.gap:.2g}: {verdict}"
