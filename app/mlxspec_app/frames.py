"""How often a screen is drawn: as often as the eye or the connection takes, and no model suffers.

A frame costs the same whether a model waits for the processor or not; where it does, frames that
come as fast as the eye takes them would slow the model down by a tenth. So they come as much later
as they are dear, and the text still arrives a few times a second. How late frames come is the
measure of whether drawing keeps up with the engine.
"""

import os
import time
from collections import deque
from collections.abc import Callable

from mlxspec_app.settings.file import Settings

_FRAMES_PER_S = 30
_FRAMES_PER_S_OVER_SSH = 15
_MOST_FRAMES = 100_000  # an hour at 30 a second
SHARE_BESIDE_A_MODEL = 0.02
_LONGEST_GAP_S = 0.5
_CHARTS_EVERY_S = 1.0
_RATE = 0.2  # at which the mean cost follows: frames with charts are dearer than their neighbours


def frames_per_s(settings: Settings) -> int:
    """Return the frames per second that were chosen, else those that suit the connection."""
    usual = _FRAMES_PER_S_OVER_SSH if "SSH_CONNECTION" in os.environ else _FRAMES_PER_S
    return settings.frame_rate or usual


class FrameClock:
    """Notes by how much each frame missed its time."""

    def __init__(self, interval_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        """Expect a frame every so many seconds.

        Args:
            interval_s: Seconds from one frame to the next.
            clock: Returns the time in seconds.
        """
        self._interval_s = interval_s
        self._clock = clock
        self._last: float | None = None
        self._late_ms: deque[float] = deque(maxlen=_MOST_FRAMES)

    def tick(self) -> None:
        """Note a frame."""
        now = self._clock()
        if self._last is not None:
            self._late_ms.append(max(0.0, now - self._last - self._interval_s) * 1e3)
        self._last = now

    def pause(self) -> None:
        """No frame is expected before the next one."""
        self._last = None

    def late_ms(self, percentile: float) -> float:
        """Return by how many milliseconds frames were late: at most, for so many per cent."""
        if not self._late_ms:
            return 0.0
        ordered = sorted(self._late_ms)
        return ordered[min(len(ordered) - 1, int(len(ordered) * percentile / 100))]

    def describe(self) -> str:
        """Return the figures in a line."""
        late = ", ".join(f"p{p} {self.late_ms(p):.1f} ms" for p in (50, 99))
        return f"{len(self._late_ms)} frames, late {late}"


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
