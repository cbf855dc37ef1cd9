"""Decides when to measure the cost curve: after the first reply, and when the context has changed.

A longer context makes every forward slower, so a measurement is valid for similar contexts only.
"""

import time
from collections.abc import Callable
from typing import Protocol

from mlxspec.trace.events import (
    CostMeasured,
    DraftVerified,
    Event,
    GenerationFinished,
    PlainDecoded,
)

_GROWTH = 2  # context lengths that differ by less than this factor share a measurement


class CostCurveLike(Protocol):
    """The part of `mlxspec.budget.CostCurve` that is used here.

    Attributes:
        ms: Milliseconds by number of rows, ascending from 1.
    """

    ms: dict[int, float]


class CostMeter:
    """Follows the replies of one model."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        """Start without a measurement; `clock` returns the time in seconds."""
        self._clock = clock
        self._context = 0
        self._measured_at: int | None = None  # tokens in the cache
        self._ended: tuple[float, float] | None = None  # end of the last reply: its `ts`, the clock

    def record(self, event: Event) -> None:
        """Follow a reply."""
        match event:
            case DraftVerified() | PlainDecoded():
                self._context = event.context
            case GenerationFinished():
                self._ended = (event.ts, self._clock())

    @property
    def is_due(self) -> bool:
        """Whether no measurement is valid for the present context length."""
        before, now = self._measured_at, self._context
        if self._ended is None or not now:
            return False
        return before is None or now >= _GROWTH * before or before >= _GROWTH * now

    def note(self, curve: CostCurveLike) -> CostMeasured:
        """Return a measurement as an event."""
        assert self._ended is not None, "nothing is measured before a reply"
        self._measured_at = self._context
        ts, ended = self._ended
        now = ts + self._clock() - ended
        return CostMeasured(now, self._context, tuple(curve.ms), tuple(curve.ms.values()))

    def give_up(self) -> None:
        """Measure no more until the context length has changed."""
        self._measured_at = self._context
