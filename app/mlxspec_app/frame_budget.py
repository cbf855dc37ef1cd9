"""How often frames may come while a model computes on the processor that draws them.

A frame costs the same whether a model waits for the processor or not; where it does, frames that
come as fast as the eye takes them would slow the model down by a tenth. So they come as much later
as they are dear, and the text still arrives a few times a second.
"""

import time
from collections.abc import Callable

SHARE_BESIDE_A_MODEL = 0.02
_LONGEST_GAP_S = 0.5
_CHARTS_EVERY_S = 1.0
_RATE = 0.2  # at which the mean cost follows: frames with charts are dearer than their neighbours


class FrameBudget:
    """Spreads frames so that they take at most a share of one core."""

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        spent: Callable[[], float] = time.thread_time,
    ) -> None:
        """Begin without a limit.

        Args:
            clock: Returns the time in seconds.
            spent: Returns the processor seconds of the drawing thread.
        """
        self._clock, self._spent = clock, spent
        self._share = 1.0
        self._drawn_at = clock()
        self._spent_then: float | None = spent()  # None where the next frame's cost does not count
        self._cost_s = 0.0
        self._charted_at = -_CHARTS_EVERY_S

    def limit(self, *, is_shared: bool) -> None:
        """Keep to the share from now on where the processor is shared, or to none.

        What frames cost is found out anew, from the one after the next on: a new message is laid
        out first, and that would delay the first words of the reply.
        """
        self._share = SHARE_BESIDE_A_MODEL if is_shared else 1.0
        self._cost_s, self._spent_then = 0.0, None

    def allows_frame(self) -> bool:
        """Return whether a frame may come now; if so, what it costs counts from here on."""
        now = self._clock()
        if now - self._drawn_at < min(_LONGEST_GAP_S, self._cost_s / self._share):
            return False
        spent = self._spent()
        if self._spent_then is not None:
            self._cost_s += _RATE * (spent - self._spent_then - self._cost_s)
        self._drawn_at, self._spent_then = now, spent
        return True

    def allows_charts(self) -> bool:
        """Return whether this frame may draw charts, its dearest part; if so, count it."""
        now = self._clock()
        if self._share < 1.0 and now - self._charted_at < _CHARTS_EVERY_S:
            return False
        self._charted_at = now
        return True
