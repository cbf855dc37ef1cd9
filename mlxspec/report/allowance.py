"""How long something may take, handed down to what it consists of."""

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from mlxspec.budget import CostCurve

T = TypeVar("T")

Finding = tuple[str, Any]
"""A name, and what goes into JSON under it."""


class Allowance:
    """Some seconds, which run from its making on."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._end = clock() + seconds

    @property
    def seconds_left(self) -> float:
        """Seconds that are left, 0 where none are."""
        return max(self._end - self._clock(), 0.0)

    @property
    def is_over(self) -> bool:
        return self.seconds_left == 0

    def share(self, count: int) -> "Allowance":
        """Return an equal share of what is left, for the first of so many that are to come."""
        return self.first(1 / count)

    def first(self, part: float) -> "Allowance":
        """Return the first part of what is left, 1 being all of it."""
        return Allowance(part * self.seconds_left, self._clock)

    def within(self, items: Sequence[T]) -> Iterator[T]:
        """Yield items while time is left; the first one in any case."""
        for number, item in enumerate(items):
            if number and self.is_over:
                return
            yield item


def curve_dict(curve: CostCurve, per: int = 1) -> dict[str, list[float]]:
    """Return milliseconds by rows ready for JSON, each divided by `per`."""
    return {"rows": list(curve.ms), "ms": [ms / per for ms in curve.ms.values()]}
