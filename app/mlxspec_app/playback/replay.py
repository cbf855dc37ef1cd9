"""A session that plays a recorded trace, with neither a model nor MLX.

It returns the events at their recorded times divided by a speed, and can go to any position.
"""

import time
from collections.abc import Callable, Iterable
from os import PathLike
from typing import Literal

from mlxspec.errors import TraceError
from mlxspec.trace.events import DraftProposed, Event, GenerationStarted
from mlxspec.trace.file import read_trace
from mlxspec_app.conversation.events import AnyEvent, SessionOpening, SessionReady
from mlxspec_app.conversation.orders import ReadOnly
from mlxspec_app.conversation.rounds import Round
from mlxspec_app.conversation.state import ChatState
from mlxspec_app.playback.timeline import Checkpoints, Playhead, Timeline, Unit

SHORTEST_LOOK_S = 0.2


class ReplaySession(ReadOnly):
    """A session over recorded events; `sessions.session.Session` documents its methods.

    `position` is the number of moments that were shown.
    """

    def __init__(
        self,
        events: Iterable[Event],
        *,
        speed: float = 1.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Lay out the recording; `speed` is in recorded seconds per second of the clock."""
        super().__init__("this is a recording")
        self.timeline = Timeline(events)
        self.playhead = Playhead(clock, speed)
        self.position = 0
        self._end = 0  # where it stops to play
        self._checkpoints = Checkpoints(self.timeline, self._opening())

    @classmethod
    def from_file(cls, path: str | PathLike[str], speed: float = 1.0) -> "ReplaySession":
        """Return a session that plays a trace file; raise `TraceError` if it has no events."""
        session = cls(read_trace(path), speed=speed)
        if not len(session.timeline):
            raise TraceError(f"the trace {path} has no events; record one with --trace FILE")
        return session

    @property
    def busy(self) -> bool:
        return self.position < self._end

    @property
    def lingers(self) -> bool:
        """Whether the present moment stays on the screen long enough to be seen."""
        if self.playhead.paused or not self.busy:
            return True
        since = self.timeline.time_of(self.position)
        shown_s = (self.timeline.time_of(self.position + 1) - since) / self.playhead.speed
        return shown_s >= SHORTEST_LOOK_S

    @property
    def view(self) -> Round | DraftProposed | None:
        """The draft or the verdict that is on the screen and not yet committed."""
        return self.timeline.view(self.position)

    def start(self) -> None:
        self.playhead.jump(0.0)
        self.news += self._opening()
        self._end = len(self.timeline)

    def close(self) -> None:
        self.position = self._end = len(self.timeline)

    def drain(self) -> list[AnyEvent | ChatState]:
        now = self.playhead.tick(running=self.busy)
        if not self.playhead.paused:  # a phase may share its time with the next one
            self._advance(min(self._end, self.timeline.reached_at(now)))
        news, self.news = self.news, []
        return news

    def move(self, unit: Unit, direction: Literal[1, -1]) -> None:
        """Pause, and go to the end of the next or the previous phase, round or rejection."""
        self.playhead.paused = True
        self.go_to(self.timeline.move(self.position, unit, direction))

    def go_to(self, position: int) -> None:
        """Show the recording up to a position.

        The next `drain` returns the events between the two positions; backwards, a whole state.
        """
        if position < self.position:  # the news belong to the state that is left
            self.news = [self._checkpoints.state_at(position)]
            self.position = position
        self._advance(position)
        self.playhead.jump(self.timeline.time_of(position))

    def _opening(self) -> list[AnyEvent]:
        metas = (m.event for m in self.timeline.moments if isinstance(m.event, GenerationStarted))
        meta = next(metas, None)
        opening = [SessionOpening(meta.target, meta.drafter)] if meta is not None else []
        return [*opening, SessionReady()]

    def _advance(self, position: int) -> None:
        if position > self.position:
            self.news += self.timeline.events(self.position, position)
            self.position = position
