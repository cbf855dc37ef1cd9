"""Where two replies part: the tokens of both there, and whether rounding decided between them."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import compress, count
from operator import ne

from mlxspec.trace.near_tie import is_near_tie, verdict_on


def common_length(first: Sequence[object], second: Sequence[object]) -> int:
    """Return the number of items with which both sequences begin."""
    differences = compress(count(), map(ne, first, second))  # a chat has 100,000 to compare
    return next(differences, min(len(first), len(second)))


@dataclass(frozen=True)
class Difference:
    """Where a greedy reply leaves another.

    Attributes:
        index: Tokens before it, which are the same.
        token: The token written there, or None where the reply is over.
        expected: The token of the other reply, or None likewise.
        gap: The target's best logit there less the lower one of the two; None where one reply is
            over.
        near_tie: Largest gap that rounding explains there; 0 for none.
        token_logit: The target's logit of the token, after bias and penalties, read with nothing
            beside it; None where one reply is over.
        expected_logit: Of the other token.
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
        """Whether the target hardly prefers one to the other, and nothing to both."""
        return is_near_tie(self.gap, self.near_tie)

    def describe(self) -> str:
        """Return in a line what stands there."""
        if self.gap is None:
            return f"parts after {self.index} tokens, where one of the two ends"
        verdict = verdict_on(self.gap, self.near_tie)
        return f"parts after {self.index} tokens, top-2 gap {self.gap:.2g}: {verdict}"
