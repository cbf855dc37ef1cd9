"""A session that plays a recorded trace: the demo, the replay screen and the test double.

The events come out at the times at which they were recorded, divided by a speed. With
`autoplay` the whole recording runs by itself; without, each message sent plays the next recorded
reply, so the chat screen works with neither a model nor MLX.
"""

import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from os import PathLike
from typing import Literal

from mlxspec.errors import TraceError
from mlxspec.events import (
    DraftVerified,
    Event,
    GenerationFailed,
    GenerationFinished,
    GenerationStarted,
    PlainDecoded,
    TurnStarted,
)
from mlxspec.trace import read_trace
from mlxspec_app.session import (
    ChatCleared,
    ReplyDiscarded,
    SessionEvent,
    SessionNotice,
    SessionOpening,
    SessionReady,
)

PAUSE_BETWEEN_REPLIES_S = 1.0
SLOWEST, FASTEST = 1 / 16, 16.0

_ROUND_ENDS = (DraftVerified, PlainDecoded)
_REPLY_ENDS = (GenerationFinished, GenerationFailed)


@dataclass(frozen=True)
class Timed:
    """An event and when it comes, in seconds since the recording began."""

    at: float
    event: Event


def timeline(events: Iterable[Event]) -> list[Timed]:
    """Return the events with the times of all replies laid end to end; time never runs back."""
    timed: list[Timed] = []
    start = now = 0.0
    fresh = True
    for event in events:
        if isinstance(event, TurnStarted | GenerationStarted) and not fresh:
            start = now = now + PAUSE_BETWEEN_REPLIES_S
            fresh = True
        if not isinstance(event, TurnStarted | GenerationStarted):
            fresh = False
            now = max(now, start + event.ts)
        timed.append(Timed(now, event))
    return timed


class ReplaySession:
    """A session over recorded events; see `mlxspec_app.session.Session` for its methods.

    Attributes:
        paused: Whether time stands still.
        speed: Recorded seconds that pass in a second; infinite plays a reply at once.
        timeline: Every recorded event and its time.
    """

    def __init__(
        self,
        events: Iterable[Event],
        *,
        speed: float = 1.0,
        autoplay: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Lay out the recording.

        Args:
            events: What was recorded.
            speed: Recorded seconds that pass in a second.
            autoplay: Whether to play everything by itself.
            clock: Returns the time in seconds.
        """
        self.paused = False
        self.speed = speed
        self.timeline = timeline(events)
        self._autoplay = autoplay
        self._clock = clock
        self._last_tick = clock()
        self._now = 0.0
        self._next = 0
        self._end = 0
        self._news: list[Event | SessionEvent] = []

    @classmethod
    def from_file(cls, path: str | PathLike[str], speed: float = 1.0) -> "ReplaySession":
        """Return a session that plays a trace file by itself.

        Raises:
            TraceError: The file cannot be read, or holds nothing to play.
        """
        session = cls(read_trace(path), speed=speed, autoplay=True)
        if not session.timeline:
            raise TraceError(f"the trace {path} holds no events; record one with --trace FILE")
        return session

    @property
    def busy(self) -> bool:
        return self._next < self._end

    @property
    def position(self) -> float:
        """Recorded seconds played so far."""
        return min(self._now, self.duration)

    @property
    def duration(self) -> float:
        """Recorded seconds in all."""
        return self.timeline[-1].at if self.timeline else 0.0

    @property
    def rounds_played(self) -> int:
        """Target forwards shown so far."""
        return sum(isinstance(timed.event, _ROUND_ENDS) for timed in self.timeline[: self._next])

    @property
    def accepted_lengths(self) -> list[int]:
        """Accepted drafted tokens of every recorded target forward."""
        events = (timed.event for timed in self.timeline)
        return [
            len(event.path) if isinstance(event, DraftVerified) else 0
            for event in events
            if isinstance(event, _ROUND_ENDS)
        ]

    def start(self) -> None:
        self._last_tick = self._clock()
        meta = next(
            (t.event for t in self.timeline if isinstance(t.event, GenerationStarted)), None
        )
        if meta is not None:
            self._news.append(SessionOpening(meta.target, meta.drafter))
        self._news.append(SessionReady())
        if self._autoplay:
            self._end = len(self.timeline)

    def send(self, text: str) -> None:
        if not self.timeline:
            self._news.append(SessionNotice("the recording is empty: nothing can be answered"))
            return
        if self._next >= len(self.timeline):
            self._next = 0
            self._news.append(SessionNotice("the recording is over and starts again"))
        while self._next < len(self.timeline) - 1 and self._is(self._next, TurnStarted):
            self._next += 1
        self._news.append(TurnStarted("user", text))
        self._play_reply(self._next)

    def regenerate(self) -> None:
        started = [i for i in range(self._next) if self._is(i, GenerationStarted)]
        if started:
            self._news.append(ReplyDiscarded())
            self._play_reply(started[-1])

    def new_chat(self) -> None:
        self._next = self._end = 0
        self._news.append(ChatCleared())

    def stop(self) -> None:
        if not self.busy:
            return
        self._tick()
        ts = getattr(self.timeline[max(0, self._next - 1)].event, "ts", 0.0)
        self._next = self._end
        self._news.append(GenerationFinished(ts, "cancelled"))

    def close(self) -> None:
        self._next = self._end = len(self.timeline)

    def drain(self) -> list[Event | SessionEvent]:
        self._tick()
        while self.busy and self.timeline[self._next].at <= self._now:
            self._news.append(self.timeline[self._next].event)
            self._next += 1
        news, self._news = self._news, []
        return news

    def step(self) -> None:
        """Pause, and let the next drain reach the end of the next round."""
        self.paused = True
        for index in range(self._next, self._end):
            if self._is(index, *_ROUND_ENDS, *_REPLY_ENDS):
                self._now = self.timeline[index].at
                return

    def change_speed(self, direction: Literal["faster", "slower"]) -> None:
        """Double or halve the speed within its bounds."""
        factor = 2.0 if direction == "faster" else 0.5
        self.speed = min(FASTEST, max(SLOWEST, self.speed * factor))

    def _tick(self) -> None:
        now = self._clock()
        elapsed, self._last_tick = now - self._last_tick, now
        if not self.paused and self.busy:
            self._now += math.inf if math.isinf(self.speed) else elapsed * self.speed

    def _play_reply(self, start: int) -> None:
        end = start
        while end < len(self.timeline) - 1 and not self._is(end, *_REPLY_ENDS):
            end += 1
        self._next, self._end = start, end + 1
        self._now = self.timeline[start].at
        self._last_tick = self._clock()

    def _is(self, index: int, *kinds: type) -> bool:
        return isinstance(self.timeline[index].event, kinds)
