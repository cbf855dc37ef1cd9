"""The playhead: recorded time that passes at a speed, pauses, or jumps."""

import math
from collections.abc import Callable
from typing import Literal

SPEEDS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0)


class Playhead:
    """Counts recorded seconds at a speed; an infinite speed plays everything at once."""

    def __init__(self, clock: Callable[[], float], speed: float = 1.0) -> None:
        """Start at 0; `clock` is in seconds, `speed` in recorded seconds per second."""
        self.now = 0.0
        self.paused = False
        self.speed = speed
        self._clock = clock
        self._last_tick = clock()

    def tick(self, *, running: bool = True) -> float:
        """Add the time since the last tick, unless paused or not running, and return `now`."""
        now = self._clock()
        elapsed, self._last_tick = now - self._last_tick, now
        if running and not self.paused:
            self.now += math.inf if math.isinf(self.speed) else elapsed * self.speed
        return self.now

    def jump(self, seconds: float) -> None:
        self._last_tick = self._clock()
        self.now = seconds

    def change_speed(self, direction: Literal["faster", "slower"]) -> None:
        """Change to the next or the previous one of `SPEEDS`."""
        if direction == "faster":
            self.speed = min((s for s in SPEEDS if s > self.speed), default=self.speed)
        else:
            self.speed = max((s for s in SPEEDS if s < self.speed), default=self.speed)
