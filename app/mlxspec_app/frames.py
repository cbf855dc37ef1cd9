"""How late the frames of a screen come: the measure of whether drawing keeps up with the engine."""

import time
from collections import deque
from collections.abc import Callable

_MOST_FRAMES = 100_000  # an hour at 30 a second


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
