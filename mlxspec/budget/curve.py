"""The cost curve: milliseconds of a forward by its rows, measured, then updated in every round.

Kernels compute rows in blocks, so the cost rises in steps. Near the edge of a block it may fall:
twelve rows can take longer than sixteen. Between two timed widths only one cost is certain: a
forward that is padded to the wider width costs as much as that width. So the cost of an untimed
width is interpolated, and the width is padded to a timed one unless it seems clearly cheaper.
"""

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Mapping
from statistics import median
from typing import Any

_RATE = 0.2  # weight of one round's time in the moving mean
_SHARED = 0.5  # share of a change (in logarithms) for all widths: other programs slow down all
_MOST_OFF = 4.0  # a round counts for at most 4 times the recorded cost: a computer may fall asleep
_WINDOW = 9  # latest times of a width, to find outliers
_LATEST = 64  # rounds after which a time counts as stale
_ENOUGH = 5  # with fewer times an outlier cannot be recognised
_MAX_DEVIATIONS = 3 * 1.4826  # median absolute deviations: three standard deviations
_LEAST_DEVIATION = 0.02
_UNTIMED = 1.05  # an untimed width may cost 5 % more than the interpolation
_SMALLEST_CONTEXT = 1024
_DECAY = 0.95  # weight of earlier drafts after each new one
_POSSIBLE = 0.85  # of one row: more rows cost no less, but for noise
_MAX_MS = 1e9  # of a forward: eleven days; a stored file may hold any number
# More rows than were ever timed. Forwards are padded to cheap widths, so a damaged file with a
# low cost for an enormous width would make every forward that wide.
_MAX_WIDTH = 4096


class CostCurve:
    """Milliseconds of a forward by number of rows, for contexts of similar length.

    `ms` has the milliseconds by timed width; 1 is among them, and all are more than 0. Of an
    assumed curve only the ratios count: the fastest of the first rounds sets its milliseconds.
    """

    def __init__(self, ms: Mapping[int, float], *, is_assumed: bool = False) -> None:
        if 1 not in ms or not all(width > 0 and time > 0 for width, time in ms.items()):
            raise ValueError(
                f"a cost curve needs widths and times above 0, and width 1; got {dict(ms)}"
            )
        self.ms = dict(sorted(ms.items()))
        self._is_assumed = is_assumed
        self._recent: dict[int, deque[float]] = {}
        self._num_observed = 0
        self._last_observed: dict[int, int] = {}

    @property
    def ratios(self) -> tuple[float, ...]:
        """Cost of each timed width, relative to one row."""
        return tuple(ms / self.ms[1] for ms in self.ms.values())

    @property
    def is_possible(self) -> bool:
        """Whether no forward took less than one of a single row: else the machine was busy."""
        return min(self.ratios) >= _POSSIBLE

    def raw(self, width: int) -> float:
        """Return the milliseconds of exactly `width` rows, estimated if they were not timed."""
        if width in self.ms:
            return self.ms[width]
        widths = list(self.ms)
        index = bisect_left(widths, width)
        if index < len(widths):
            below, above = widths[index - 1], widths[index]
            share = (width - below) / (above - below)
            return self.ms[below] + share * (self.ms[above] - self.ms[below])
        last = widths[-1]
        if last == 1:  # a low estimate for two rows, so that a round tries them
            return self.ms[1] * (_UNTIMED if width == 2 else width)
        slope = (self.ms[last] - self.ms[widths[-2]]) / (last - widths[-2])
        return self.ms[last] + max(slope, 0.0) * (width - last)

    def padded(self, width: int) -> int:
        """Return the cheapest width for `width` rows: the width itself or a timed wider one.

        One row is never padded.
        """
        if width == 1:
            return 1
        wider = [timed for timed in self.ms if timed > width]
        best = min(wider, key=self.ms.__getitem__, default=width)
        own = self.raw(width) * (1.0 if width in self.ms else _UNTIMED)
        return best if best in self.ms and self.ms[best] < own else width

    def cost(self, width: int) -> float:
        """Return the milliseconds of verifying `width` rows, padded where that is cheaper."""
        return self.raw(self.padded(width))

    def stale(self, most: int) -> list[int]:
        """Return the widths up to `most` that were timed, but not in one of the latest rounds.

        Widths that are padded are left out: no round has exactly that many rows.
        """
        since = self._num_observed - _LATEST
        timed = [width for width in self.ms if width <= most and self.padded(width) == width]
        return [width for width in timed if self._last_observed.get(width, since) <= since]

    def observe(self, width: int, ms: float) -> None:
        """Update the curve by a real round; ignore an outlier among the latest of its width."""
        self._num_observed += 1
        self._last_observed[width] = self._num_observed
        recent = self._recent.setdefault(width, deque(maxlen=_WINDOW))
        is_usual = _is_usual(ms, recent)
        recent.append(ms)  # outliers too: if the cost really changed, they become usual
        if not is_usual:
            return
        expected = self.raw(width)
        if self._is_assumed and self._num_observed <= _ENOUGH:
            if self._num_observed == 1 or ms < expected:  # the first may compile kernels
                self.ms = {other: time * ms / expected for other, time in self.ms.items()}
            return
        # At first a shorter time counts for more: other programs only lengthen times.
        rate = max(_RATE, 1 / len(recent)) if ms < expected else _RATE
        change = 1.0 + rate * (min(ms / expected, _MOST_OFF) - 1.0)
        if width not in self.ms:
            self.ms = dict(sorted({**self.ms, width: expected}.items()))
        for other in self.ms:
            self.ms[other] *= change if other == width else change**_SHARED


class FittedCurve:
    """A cost curve where every forward has one of certain widths; methods as in `CostCurve`."""

    def __init__(self, curve: CostCurve, fit: Callable[[int], int]) -> None:
        """`fit` returns the width of a forward over a number of rows."""
        self._curve, self.padded = curve, fit
        self.raw, self.observe = curve.raw, curve.observe

    def cost(self, width: int) -> float:
        return self._curve.raw(self.padded(width))

    def stale(self, most: int) -> list[int]:
        return [width for width in self._curve.stale(most) if self.padded(width) == width]


class DraftCost:
    """Milliseconds of a draft on the device by the requested nodes: a fitted line.

    The device computes a lazy draft together with its verification, so only their sum can be timed.
    The time beyond the recorded cost of the verification belongs to the draft: a constant per round
    and a slope per node. The weight of old rounds decays.
    """

    def __init__(self) -> None:
        # One imagined round without nodes or cost: it fixes the slope while only one n was seen.
        self._sums = (1.0, 0.0, 0.0, 0.0, 0.0)  # of 1, n, ms, n * n and n * ms
        self._num_rounds = 0

    @property
    def is_measured(self) -> bool:
        return self._num_rounds > 1

    def observe(self, num_allowed: int, ms: float) -> None:
        """Learn from a round; ignore the first, which compiles kernels and loads weights."""
        self._num_rounds += 1
        if not self.is_measured:
            return
        ms = max(ms, 0.0)
        news = (1.0, num_allowed, ms, num_allowed * num_allowed, num_allowed * ms)
        weight, *sums = (old * _DECAY + new for old, new in zip(self._sums, news, strict=True))
        self._sums = (weight, sums[0], sums[1], sums[2], sums[3])

    def at(self, num_allowed: int) -> float:
        """Return the milliseconds of drafting `num_allowed` nodes; 0 for none."""
        if not num_allowed:
            return 0.0
        weight, x, y, xx, xy = self._sums
        spread = weight * xx - x * x
        slope = max((weight * xy - x * y) / spread, 0.0) if spread > 0 else 0.0
        start = max((y - slope * x) / weight, 0.0)
        return start + slope * num_allowed


class CostBook:
    """A cost curve for every power of two of context: the cost of attention grows with it.

    `curves` are by index of the bucket; 0 is for contexts below 1024 tokens. `assumed` are costs by
    width relative to one row, which count until any are measured; they are not kept.
    """

    def __init__(self, assumed: Mapping[int, float] | None = None) -> None:
        self.curves: dict[int, CostCurve] = {}
        self._assumed = CostCurve(assumed, is_assumed=True) if assumed else None

    @staticmethod
    def bucket(context: int) -> int:
        return (context // _SMALLEST_CONTEXT).bit_length()

    def add(self, context: int, curve: CostCurve) -> None:
        """Record a curve; one of a busy machine counts only until another one is measured."""
        if curve.is_possible:
            self.curves[self.bucket(context)] = curve
        elif self._assumed is None:
            least = {width: max(ms, curve.ms[1]) for width, ms in curve.ms.items()}
            self._assumed = CostCurve(least, is_assumed=True)

    def at(self, context: int) -> CostCurve | None:
        """Return the measured cost curve of a context, or the assumed one; None without any."""
        return self.measured(context) or self._assumed

    def measured(self, context: int) -> CostCurve | None:
        """Return the cost curve of a context; a new bucket starts with a copy of the nearest."""
        bucket = self.bucket(context)
        if bucket not in self.curves and self.curves:
            nearest = min(self.curves, key=lambda other: abs(other - bucket))
            self.curves[bucket] = CostCurve(self.curves[nearest].ms)
        return self.curves.get(bucket)

    def as_dict(self) -> dict[str, Any]:
        return {
            str(bucket): {str(width): round(ms, 4) for width, ms in curve.ms.items()}
            for bucket, curve in self.curves.items()
            if curve.is_possible
        }

    def read(self, stored: Mapping[str, Any]) -> None:
        """Restore what `as_dict` returned; ignore anything else."""
        for bucket, times in stored.items():
            try:
                ms = {int(width): float(time) for width, time in times.items()}
                curve = CostCurve(ms)
            except (AttributeError, TypeError, ValueError, OverflowError):
                continue
            if (
                curve.is_possible
                and max(ms) <= _MAX_WIDTH
                and max(ms.values()) < _MAX_MS
                and bucket.isdecimal()
            ):
                self.curves[int(bucket)] = curve


def _is_usual(ms: float, recent: deque[float]) -> bool:
    if len(recent) < _ENOUGH:
        return True
    middle = median(recent)
    deviation = median(abs(time - middle) for time in recent)
    return abs(ms - middle) <= _MAX_DEVIATIONS * max(deviation, _LEAST_DEVIATION * middle)
