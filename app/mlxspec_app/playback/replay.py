"""A session that plays a recorded trace: for the demo, the replay screen and tests.

It returns the events at their recorded times divided by a speed. With `autoplay` the whole
recording plays by itself and can go to any position. Without, each message that is sent plays the
next recorded reply, so the chat screen works with neither a model nor MLX.
"""

import time
from collections.abc import Callable, Iterable
from os import PathLike
from types import UnionType
from typing import Literal

from mlxspec.errors import TraceError
from mlxspec.trace.events import (
    CostMeasured,
    DraftProposed,
    Event,
    GenerationFinished,
    GenerationStarted,
    SpeedupMeasured,
    TurnStarted,
)
from mlxspec.trace.file import read_trace
from mlxspec_app.conversation.events import (
    AnyEvent,
    ChatCleared,
    ChatCut,
    ReplyDiscarded,
    SessionNotice,
    SessionOpening,
    SessionReady,
)
from mlxspec_app.conversation.orders import (
    Edit,
    NewChat,
    OpenChat,
    Order,
    Regenerate,
    Say,
    SetSystem,
    Stop,
)
from mlxspec_app.conversation.read_only import ReadOnly
from mlxspec_app.conversation.rounds import Round
from mlxspec_app.conversation.state import ChatState
from mlxspec_app.playback.checkpoints import Checkpoints
from mlxspec_app.playback.timeline import Playhead, Timeline, Unit, folded_events

SHORTEST_LOOK_S = 0.2
_EMPTY = "the recording is empty: nothing can be answered"


class ReplaySession(ReadOnly):
    """A session over recorded events; `sessions.session.Session` documents its methods.

    `position` is the number of moments that were shown.
    """

    def __init__(
        self,
        events: Iterable[Event],
        *,
        speed: float = 1.0,
        autoplay: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Build the timeline of the recording.

        `speed` is in recorded seconds per second. With `autoplay` the whole recording plays by
        itself. `clock` returns the time in seconds.
        """
        super().__init__("this is a recording")
        self.timeline = Timeline(events)
        self.playhead = Playhead(clock, speed)
        self.position = 0
        self._autoplay = autoplay
        self._end = 0
        self._checkpoints = Checkpoints(self.timeline, self._opening())

    @classmethod
    def from_file(cls, path: str | PathLike[str], speed: float = 1.0) -> "ReplaySession":
        """Return a session that plays a trace file by itself.

        Raises:
            TraceError: The file cannot be read, or contains no events.
        """
        session = cls(read_trace(path), speed=speed, autoplay=True)
        if not len(session.timeline):
            raise TraceError(f"the trace {path} has no events; record one with --trace FILE")
        return session

    @property
    def busy(self) -> bool:
        return self.position < self._end

    @property
    def duration(self) -> float:
        """Length of the recording in seconds."""
        return self.timeline.duration

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
        if self._autoplay:
            self._end = len(self.timeline)

    def send(self, order: Order) -> None:
        match order:
            case Say(text):
                self._say(text)
            case Regenerate():
                self._regenerate()
            case Edit(turn, text):
                self.news.append(ChatCut(turn))
                self._say(text)
            case NewChat():
                self.position = self._end = 0
                self.news.append(ChatCleared())
            case OpenChat(chat):
                self._end = self.position
                self.news.append(chat)
            case SetSystem(text):
                self.news.append(TurnStarted("system", text))
            case Stop():
                self._stop()
            case _:
                super().send(order)

    def _say(self, text: str) -> None:
        if not len(self.timeline):
            self.notify(_EMPTY)
            return
        self.news.append(TurnStarted("user", text))
        if self.position >= len(self.timeline):
            self.position = 0
            self.news.append(
                SessionNotice("the recording is over and starts again", is_trouble=False)
            )
        # The message just sent replaces the recorded turn.
        while self.position < len(self.timeline) - 1 and self._is(
            self.position, TurnStarted | CostMeasured | SpeedupMeasured
        ):
            self.position += 1
        self._play_reply(self.position)

    def _regenerate(self) -> None:
        if not len(self.timeline):
            self.notify(_EMPTY)
            return
        started = [i for i in range(self.position) if self._is(i, GenerationStarted)]
        self.news.append(ReplyDiscarded())
        self._play_reply(started[-1] if started else 0)

    def _stop(self) -> None:
        if not self.busy:
            return
        self.playhead.tick()
        moment = self.timeline.moments[max(0, self.position - 1)]
        self.position = self._end
        self.news.append(GenerationFinished(getattr(moment.event, "ts", 0.0), "cancelled"))

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
            self.news += folded_events(self.timeline.moments[self.position : position])
            self.position = position

    def _play_reply(self, start: int) -> None:
        end = start
        while end < len(self.timeline) - 1 and self.timeline.moments[end].phase != "end":
            end += 1
        # A cost curve measured after the reply belongs to it.
        while end < len(self.timeline) - 1 and self._is(end + 1, CostMeasured | SpeedupMeasured):
            end += 1
        self.position, self._end = start, end + 1
        self.playhead.jump(self.timeline.time_of(start + 1))

    def _is(self, index: int, kind: type | UnionType) -> bool:
        return isinstance(self.timeline.moments[index].event, kind)
