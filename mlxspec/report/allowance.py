"""A time limit that can be divided among the steps of a measurement."""

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from mlxspec.budget import CostCurve

T = TypeVar("T")

Finding = tuple[str, Any]
"""A name and its value for JSON."""


class Allowance:
    """A time limit in seconds, counted from its construction."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._end = clock() + seconds

    @property
    def seconds_left(self) -> float:
        """Seconds that are left, at least 0."""
        return max(self._end - self._clock(), 0.0)

    @property
    def is_over(self) -> bool:
        return self.seconds_left == 0

    def share(self, count: int) -> "Allowance":
        """Return the share of the first of `count` steps that divide the remaining time equally."""
        return self.first(1 / count)

    def first(self, part: float) -> "Allowance":
        """Return a share of the remaining time, from now on; 1 is all of it."""
        return Allowance(part * self.seconds_left, self._clock)

    def within(self, items: Sequence[T]) -> Iterator[T]:
        """Yield items while time is left; always yield the first."""
        for number, item in enumerate(items):
            if number and self.is_over:
                return
            yield item


def curve_dict(curve: CostCurve, per: int = 1) -> dict[str, list[float]]:
    """Return milliseconds by rows, ready for JSON, each divided by `per`."""
    return {"rows": list(curve.ms), "ms": [ms / per for ms in curve.ms.values()]}
