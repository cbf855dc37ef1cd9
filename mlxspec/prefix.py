"""How far two token sequences agree: what a cache or an index need not read again."""

from collections.abc import Sequence


def common_length(first: Sequence[int], second: Sequence[int]) -> int:
    """Return the number of tokens with which both sequences begin."""
    pairs = enumerate(zip(first, second, strict=False))
    return next((i for i, (a, b) in pairs if a != b), min(len(first), len(second)))
