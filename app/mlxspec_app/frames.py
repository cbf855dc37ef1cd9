"""The frame rate: as high as is useful, but low while a model computes on the same processor.

At the full rate, frames would slow such a model down by a tenth. So the gap between frames grows
with their cost, up to a limit: the text still arrives a few times a second. The lateness of frames
shows whether drawing keeps up with the engine.
"""

import os
import time
from collections import deque
from collections.abc import Callable

from mlxspec_app.settings.file import Settings

_FRAMES_PER_S = 30
_FRAMES_PER_S_OVER_SSH = 15
_MOST_FRAMES = 100_000  # an hour at 30 a second
SHARE_BESIDE_A_MODEL = 0.02  # of one core
_LONGEST_GAP_S = 0.5  # however expensive frames are, text arrives twice a second
_CHARTS_EVERY_S = 1.0
_RATE = 0.2  # of the running mean of the cost, which varies: some frames draw charts


def frames_per_s(settings: Settings) -> int:
    """Return the frames per second of the settings, else those for the connection."""
    usual = _FRAMES_PER_S_OVER_SSH if "SSH_CONNECTION" in os.environ else _FRAMES_PER_S
    return settings.frame_rate or usual


class FrameClock:
    """Records by how much each frame was late."""

    def __init__(self, interval_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        """Expect a frame every `interval_s` seconds; `clock` returns seconds."""
        self._interval_s = interval_s
        self._clock = clock
        self._last: float | None = None
        self._late_ms: deque[float] = deque(maxlen=_MOST_FRAMES)

    def tick(self) -> None:
        now = self._clock()
        if self._last is not None:
            self._late_ms.append(max(0.0, now - self._last - self._interval_s) * 1e3)
        self._last = now

    def pause(self) -> None:
        """Do not count the time until the next frame as late."""
        self._last = None

    def late_ms(self, percentile: float) -> float:
        """Return a percentile of the lateness of frames, in milliseconds."""
        if not self._late_ms:
            return 0.0
        ordered = sorted(self._late_ms)
        return ordered[min(len(ordered) - 1, int(len(ordered) * percentile / 100))]

    def describe(self) -> str:
        """Return the figures in a line."""
        late = ", ".join(f"p{p} {self.late_ms(p):.1f} ms" for p in (50, 99))
        return f"{len(self._late_ms)} frames, late {late}"


class FrameBudget:
    """Limits frames to a share of one core."""

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        cpu_time: Callable[[], float] = time.thread_time,
    ) -> None:
        """Start without a limit.

        `clock` returns seconds; `cpu_time` returns the processor seconds of the drawing thread.
        """
        self._clock, self._cpu_time = clock, cpu_time
        self._share = 1.0
        self._drawn_at = clock()
        # None: the next frame's cost does not count
        self._cpu_time_before: float | None = cpu_time()
        self._cost_s = 0.0
        self._charted_at = -_CHARTS_EVERY_S

    def limit(self, *, is_shared: bool) -> None:
        """Limit frames from now on if a model shares the processor, else lift the limit.

        The cost of frames is measured again, from the frame after the next one: the next one lays
        out a new message, and its cost would delay the first words of the reply.
        """
        self._share = SHARE_BESIDE_A_MODEL if is_shared else 1.0
        self._cost_s, self._cpu_time_before = 0.0, None

    def allows_frame(self) -> bool:
        """Return whether a frame may be drawn now; if so, start to measure its cost."""
        now = self._clock()
        if now - self._drawn_at < min(_LONGEST_GAP_S, self._cost_s / self._share):
            return False
        cpu_time = self._cpu_time()
        if self._cpu_time_before is not None:
            self._cost_s += _RATE * (cpu_time - self._cpu_time_before - self._cost_s)
        self._drawn_at, self._cpu_time_before = now, cpu_time
        return True

    def allows_charts(self) -> bool:
        """Return whether this frame may draw charts, its most expensive part; if so, count it."""
        now = self._clock()
        if self._share < 1.0 and now - self._charted_at < _CHARTS_EVERY_S:
            return False
        self._charted_at = now
        return True
