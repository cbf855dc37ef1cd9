"""When things happen in a soak: in a turn, and on the whole."""

import asyncio
import time
from dataclasses import dataclass, field

from mlxspec.trace.events import (
    DraftVerified,
    GenerationFailed,
    GenerationFinished,
    GenerationStarted,
    PlainDecoded,
)

BEAT_S, STOPPED_S = 0.2, 5.0  # a beat that comes so late was held up from outside


@dataclass
class Times:
    """When what happened in a turn, by the wall's clock and by the processor's.

    The events count as they are published: a frame that shows the first one a moment later would
    add the work of the tokens behind it.
    """

    begun: tuple[float, float] = field(default_factory=lambda: _now())
    first: tuple[float, float] | None = None
    ended: tuple[float, float] | None = None
    tokens: int = 0
    first_tokens: int = 0
    drafter: str = ""
    outcome: str = ""

    def take_in(self, event) -> None:
        match event:
            case GenerationStarted():
                self.drafter = event.drafter
            case DraftVerified() | PlainDecoded():
                if self.first is None:
                    self.first, self.first_tokens = _now(), len(event.emit)
                self.tokens += len(event.emit)
            case GenerationFinished():
                self.ended, self.outcome = _now(), event.reason
            case GenerationFailed():
                self.ended, self.outcome = _now(), f"failed: {event.message}"

    def figures(self) -> dict:
        line = {"tokens": self.tokens, "drafter": self.drafter, "outcome": self.outcome}
        line |= dict.fromkeys(("first_ms", "first_cpu_ms", "ms_per_token", "cpu_ms_per_token"))
        if self.first is not None:
            line["first_ms"], line["first_cpu_ms"] = _between(self.begun, self.first)
            more = self.tokens - self.first_tokens
            if self.ended is not None and more > 0:
                wall, cpu = _between(self.first, self.ended)
                line["ms_per_token"], line["cpu_ms_per_token"] = wall / more, cpu / more
        return line


class Heart:
    """Counts the time in which this process was not stopped by others."""

    def __init__(self) -> None:
        self.hours = 0.0
        self._last = time.monotonic()

    async def beat(self) -> None:
        while True:
            now = time.monotonic()
            self.hours += (now - self._last if now - self._last < STOPPED_S else BEAT_S) / 3600
            self._last = now
            await asyncio.sleep(BEAT_S)


def _now() -> tuple[float, float]:
    return time.perf_counter(), time.process_time()


def _between(start: tuple[float, float], end: tuple[float, float]) -> tuple[float, float]:
    """Return milliseconds of the wall and of the processor."""
    return 1e3 * (end[0] - start[0]), 1e3 * (end[1] - start[1])
