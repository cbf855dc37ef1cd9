"""The choice itself: the most tokens per millisecond among all numbers of nodes."""

from collections.abc import Sequence


def best_count(gains: Sequence[float], ms: Sequence[float]) -> int:
    """Return the n that maximises (1 + gains[n]) / ms[n], the smallest of equal ones.

    Args:
        gains: Draft tokens expected to be accepted when the first n nodes are verified; the first
            one, of no nodes, is 0.
        ms: Milliseconds of such a round, each more than 0; as many.
    """
    return max(range(len(gains)), key=lambda n: (1.0 + gains[n]) / ms[n])


def loss_of(count: int, gains: Sequence[float], ms: Sequence[float], best: int) -> float:
    """Return the milliseconds that a round of `count` nodes is expected to lose.

    Against emitting as many tokens at the pace of the best number; see `best_count`.
    """
    return ms[count] - (1.0 + gains[count]) * ms[best] / (1.0 + gains[best])
