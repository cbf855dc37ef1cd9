"""The cost curve: what a forward costs by its rows, measured, then followed while rounds go by.

Kernels handle rows in blocks, so the cost rises in steps, and beside a block's edge it may fall:
twelve rows can take longer than sixteen. Between two widths that were timed nothing is known but
that the wider one's cost can be had by padding. So a width that was never timed is taken to lie on
the line between its neighbours, and is padded to a timed one unless it seems clearly cheaper.
"""

from bisect import bisect_left
from collections import deque
from collections.abc import Mapping
from statistics import median
from typing import Any

_RATE = 0.2  # of one round's time in the mean
_SHARED = 0.5  # of a change, in logarithms: other programs slow down all widths alike
_MOST_OFF = 4.0  # times what was known: more is believed of no round, a computer may fall asleep
_WINDOW = 9
_LATEST = 64  # rounds after which a time is no longer sure
_ENOUGH = 5  # times from which an outlier can be told
_MAX_DEVIATIONS = 3 * 1.4826  # median absolute deviations: three standard deviations
_LEAST_DEVIATION = 0.02
_UNTIMED = 1.05  # what an untimed width may cost more than it seems
_SMALLEST_CONTEXT = 1024
_DECAY = 0.95  # of what earlier drafts cost
_MAX_MS = 1e9  # of a forward: eleven days
_MAX_WIDTH = 4096  # more rows than were ever timed; a forward is padded to a width that is cheap


class CostCurve:
    """Milliseconds of a forward by number of rows, for contexts of about one length.

    Attributes:
        ms: Milliseconds by width, for the widths that were timed; 1 is among them.
    """

    def __init__(self, ms: Mapping[int, float]) -> None:
        """Begin with measured widths.

        Raises:
            ValueError: The width 1 is missing, or a time is not more than 0.
        """
        if 1 not in ms or not all(width > 0 and time > 0 for width, time in ms.items()):
            raise ValueError(
                f"a cost needs times of more than 0 ms, of one row too; got {dict(ms)}"
            )
        self.ms = dict(sorted(ms.items()))
        self._recent: dict[int, deque[float]] = {}
        self._num_observed = 0
        self._last_observed: dict[int, int] = {}

    @property
    def ratios(self) -> tuple[float, ...]:
        """Cost of each timed width in forwards of one row."""
        return tuple(ms / self.ms[1] for ms in self.ms.values())

    def raw(self, width: int) -> float:
        """Return the milliseconds of exactly so many rows, estimated where they were not timed."""
        if width in self.ms:
            return self.ms[width]
        widths = list(self.ms)
        place = bisect_left(widths, width)
        if place < len(widths):
            below, above = widths[place - 1], widths[place]
            share = (width - below) / (above - below)
            return self.ms[below] + share * (self.ms[above] - self.ms[below])
        last = widths[-1]
        if last == 1:  # worth finding out, with two rows
            return self.ms[1] * (_UNTIMED if width == 2 else width)
        slope = (self.ms[last] - self.ms[widths[-2]]) / (last - widths[-2])
        return self.ms[last] + max(slope, 0.0) * (width - last)

    def padded(self, width: int) -> int:
        """Return the cheapest way to verify so many rows: the width itself or a timed wider one.

        One row is never padded.
        """
        if width == 1:
            return 1
        wider = [timed for timed in self.ms if timed > width]
        best = min(wider, key=self.ms.__getitem__, default=width)
        own = self.raw(width) * (1.0 if width in self.ms else _UNTIMED)
        return best if best in self.ms and self.ms[best] < own else width

    def cost(self, width: int) -> float:
        """Return the milliseconds of verifying so many rows, padded where that is cheaper."""
        return self.raw(self.padded(width))

    def stale(self, most: int) -> list[int]:
        """Return the widths up to `most` that were timed, but not in one of the latest rounds.

        Those that are padded are passed over: no round has just so many rows.
        """
        since = self._num_observed - _LATEST
        timed = [width for width in self.ms if width <= most and self.padded(width) == width]
        return [width for width in timed if self._last_observed.get(width, since) <= since]

    def observe(self, width: int, ms: float) -> None:
        """Follow the time of a real round; one far from the latest of its width is left out."""
        self._num_observed += 1
        self._last_observed[width] = self._num_observed
        recent = self._recent.setdefault(width, deque(maxlen=_WINDOW))
        is_usual = _is_usual(ms, recent)
        recent.append(ms)
        if not is_usual:
            return
        known = self.raw(width)
        change = 1.0 + _RATE * (min(ms / known, _MOST_OFF) - 1.0)
        if width not in self.ms:
            self.ms = dict(sorted({**self.ms, width: known}.items()))
        for other in self.ms:
            self.ms[other] *= change if other == width else change**_SHARED


class DraftCost:
    """Milliseconds of a draft by the nodes asked for, where the device drafts: a fitted line.

    A lazy draft is computed together with its verification, so only their sum can be timed. What
    is above the known cost of the verification is the draft's: something for each round, something
    for each node. Old rounds fade.
    """

    def __init__(self) -> None:
        # One imagined round without nodes or cost: it tells the slope while only one n is known.
        self._sums = (1.0, 0.0, 0.0, 0.0, 0.0)  # of 1, n, ms, n * n and n * ms
        self._num_rounds = 0

    @property
    def is_known(self) -> bool:
        """Whether any round was looked at."""
        return self._num_rounds > 1

    def observe(self, asked: int, ms: float) -> None:
        """Take note of a round; the first is passed over, for it compiles and loads."""
        self._num_rounds += 1
        if not self.is_known:
            return
        ms = max(ms, 0.0)
        news = (1.0, asked, ms, asked * asked, asked * ms)
        weight, *sums = (old * _DECAY + new for old, new in zip(self._sums, news, strict=True))
        self._sums = (weight, sums[0], sums[1], sums[2], sums[3])

    def at(self, asked: int) -> float:
        """Return the milliseconds of drafting so many nodes; 0 for none."""
        if not asked:
            return 0.0
        weight, x, y, xx, xy = self._sums
        spread = weight * xx - x * x
        slope = max((weight * xy - x * y) / spread, 0.0) if spread > 0 else 0.0
        start = max((y - slope * x) / weight, 0.0)
        return start + slope * asked


class CostBook:
    """A cost curve for every power of two of context: attention grows with it.

    Attributes:
        curves: By number of the bucket, 0 for contexts below 1024 tokens.
    """

    def __init__(self) -> None:
        self.curves: dict[int, CostCurve] = {}

    @staticmethod
    def bucket(context: int) -> int:
        """Return the bucket of a number of tokens."""
        return (context // _SMALLEST_CONTEXT).bit_length()

    def knows(self, context: int) -> bool:
        """Return whether something is known of contexts of about this length."""
        return self.bucket(context) in self.curves

    def add(self, context: int, curve: CostCurve) -> None:
        """Take a cost curve for contexts of about this length."""
        self.curves[self.bucket(context)] = curve

    def at(self, context: int) -> CostCurve | None:
        """Return the cost curve of a context; that of the nearest bucket begins a new one."""
        bucket = self.bucket(context)
        if bucket not in self.curves and self.curves:
            nearest = min(self.curves, key=lambda other: abs(other - bucket))
            self.curves[bucket] = CostCurve(self.curves[nearest].ms)
        return self.curves.get(bucket)

    def as_dict(self) -> dict[str, Any]:
        """Return the milliseconds ready for JSON."""
        return {
            str(bucket): {str(width): round(ms, 4) for width, ms in curve.ms.items()}
            for bucket, curve in self.curves.items()
        }

    def read(self, kept: Mapping[str, Any]) -> None:
        """Take over what `as_dict` returned; anything else is passed over."""
        for bucket, times in kept.items():
            try:
                ms = {int(width): float(time) for width, time in times.items()}
                curve = CostCurve(ms)
            except (AttributeError, TypeError, ValueError, OverflowError):
                continue
            if max(ms) <= _MAX_WIDTH and max(ms.values()) < _MAX_MS and bucket.isdecimal():
                self.curves[int(bucket)] = curve


def _is_usual(ms: float, recent: deque[float]) -> bool:
    if len(recent) < _ENOUGH:
        return True
    middle = median(recent)
    deviation = median(abs(time - middle) for time in recent)
    return abs(ms - middle) <= _MAX_DEVIATIONS * max(deviation, _LEAST_DEVIATION * middle)
