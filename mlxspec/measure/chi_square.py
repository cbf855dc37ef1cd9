"""Pearson's chi-square test: do samples fit an exact distribution?

The tail of the chi-square distribution has a closed form for integer degrees of freedom (Abramowitz
and Stegun, 26.4.4 and 26.4.5): a finite sum of positive terms, so nothing cancels.
"""

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar, TypeVar

_LEAST_EXPECTED = 5.0  # count of a cell; rarer ones are pooled: the test needs large counts

Cell = TypeVar("Cell", bound=Hashable)


@dataclass(frozen=True)
class Fit:
    """How well `num_draws` samples fit a distribution."""

    DERIVED: ClassVar = ("p_value",)

    num_draws: int
    chi_square: float  # Pearson's statistic
    freedom: int  # degrees of it

    @property
    def p_value(self) -> float:
        """Probability that samples from the distribution itself fit as badly or worse."""
        return survival(self.chi_square, self.freedom)

    def __add__(self, other: "Fit") -> "Fit":
        """Return the fit of independent samples from two distributions."""
        return Fit(
            self.num_draws + other.num_draws,
            self.chi_square + other.chi_square,
            self.freedom + other.freedom,
        )


def fit(draws: Iterable[Cell], probs: Mapping[Cell, float]) -> Fit:
    """Return how well samples fit a distribution; `probs` has the probability of every cell."""
    counts = Counter(draws)
    assert counts.keys() <= probs.keys(), "a sample is in no cell of the distribution"
    num_draws = counts.total()
    pools = pooled(probs, num_draws)
    chi_square = 0.0
    for pool in pools:
        expected = num_draws * sum(probs[cell] for cell in pool)
        chi_square += (sum(counts[cell] for cell in pool) - expected) ** 2 / expected
    return Fit(num_draws, chi_square, len(pools) - 1)


def pooled(probs: Mapping[Cell, float], num_draws: int) -> list[list[Cell]]:
    """Return the cells of a distribution in pools, each of which expects 5 samples or more."""
    pools: list[list[Cell]] = []
    pool: list[Cell] = []
    for cell in sorted(probs, key=lambda cell: -probs[cell]):
        pool.append(cell)
        if num_draws * sum(probs[cell] for cell in pool) >= _LEAST_EXPECTED:
            pools.append(pool)
            pool = []
    if not pools:
        return [pool]
    pools[-1] += pool
    return pools


def survival(chi_square: float, freedom: int) -> float:
    """Return the probability that a chi-square variable is larger than `chi_square`."""
    if chi_square <= 0 or freedom < 1:
        return 1.0
    half = chi_square / 2
    offset = (freedom % 2) / 2
    tail = math.erfc(math.sqrt(half)) if offset else 0.0
    for power in (offset + i for i in range(freedom // 2)):
        # in logarithms, because the powers of a large chi-square would overflow
        tail += math.exp(power * math.log(half) - half - math.lgamma(power + 1))
    return min(1.0, tail)
