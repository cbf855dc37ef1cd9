"""How far two token sequences agree: what a cache or an index need not read again."""

from collections.abc import Sequence
from itertools import compress, count
from operator import ne


def common_length(first: Sequence[int], second: Sequence[int]) -> int:
    """Return the number of tokens with which both sequences begin."""
    differences = compress(count(), map(ne, first, second))  # a chat has 100,000 to compare
    return next(differences, min(len(first), len(second)))
