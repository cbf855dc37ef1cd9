"""The timeline of a recording: moments, phases and rounds; and its playhead.

A *moment* is the smallest step of a replay. Each event is one moment; a verdict is two: first the
screen shows it (`verify`), then the text grows by it (`commit`). A *position* is the number of
moments shown, from 0 to all of them; a move turns a position into another one. The numbers of
rounds start at 1 and run over all replies, plain rounds included.
"""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from mlxspec.trace.events import (
    CostMeasured,
    DraftProposed,
    DraftVerified,
    Event,
    GenerationStarted,
    PlainDecoded,
    PrefillProgress,
    SpeedupMeasured,
    TokensKept,
    TurnStarted,
)
from mlxspec_app.conversation.rounds import Round

PAUSE_BETWEEN_REPLIES_S = 1.0
SPEEDS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0)

Phase = Literal["prefill", "draft", "verify", "commit", "end"]
"""`prefill`: from the user's turn to the end of the prefill; `draft`: the drafter has proposed;
`verify`: the target has verified; `commit`: the text has grown; `end`: the reply is over, or the
cost of forwards was measured."""

Unit = Literal["phase", "round", "rejection"]
"""The unit of a move; a rejection is a round whose draft continued after the accepted nodes."""


@dataclass(frozen=True)
class Moment:
    """The smallest step of a replay.

    `at` is in seconds since the recording began. A `verify` and the `commit` that follows it have
    the same event.
    """

    at: float
    phase: Phase
    event: Event

    @property
    def is_folded(self) -> bool:
        """Whether the moment changes the state; a verdict changes it with its commit."""
        return self.phase != "verify"


@dataclass(frozen=True)
class RoundMark:
    """The part of a round that a scrubber and the moves need.

    `end` is the position after its commit, `reply` a number from 1. `accepted` is None in a plain
    round. `is_rejection` says whether the last accepted node has children, all of them rejected.
    """

    end: int
    reply: int
    accepted: int | None
    is_rejection: bool


class Timeline:
    """The moments of a recording in order of time, and its committed rounds.

    `rounds` includes plain ones. `num_replies` counts the replies that started; each starts after
    the end of the one before.
    """

    def __init__(self, events: Iterable[Event]) -> None:
        self.moments = list(_moments(events))
        self.num_replies = 0
        self.rounds: list[RoundMark] = []
        draft: DraftProposed | None = None
        for position, moment in enumerate(self.moments, 1):
            self.num_replies += isinstance(moment.event, GenerationStarted)
            if moment.phase == "draft" and isinstance(moment.event, DraftProposed):
                draft = moment.event
            elif moment.phase == "commit":
                self.rounds.append(_mark(position, self.num_replies, moment.event, draft))
                draft = None
        self._times = [moment.at for moment in self.moments]
        self._stops: dict[Unit, list[int]] = {
            "phase": [p for p in range(1, len(self) + 1) if self._ends_phase(p)],
            "round": [mark.end for mark in self.rounds],
            "rejection": [mark.end for mark in self.rounds if mark.is_rejection],
        }

    def __len__(self) -> int:
        return len(self.moments)

    @property
    def duration(self) -> float:
        """Length of the recording in seconds."""
        return self._times[-1] if self._times else 0.0

    def time_of(self, position: int) -> float:
        """Return the time of a position in seconds."""
        return self._times[position - 1] if position else 0.0

    def reached_at(self, seconds: float) -> int:
        """Return the position at a time in seconds."""
        return bisect_right(self._times, seconds)

    def rounds_done(self, position: int) -> int:
        return bisect_right(self._stops["round"], position)

    def move(self, position: int, unit: Unit, direction: Literal[1, -1]) -> int:
        """Return the end of the next or the previous phase, round or rejection.

        After the last phase or round comes the end, before the first the start. Without a further
        rejection the position stays.
        """
        stops = self._stops[unit]
        index = bisect_right(stops, position) if direction > 0 else bisect_left(stops, position) - 1
        if 0 <= index < len(stops):
            return stops[index]
        if unit == "rejection":
            return position
        return len(self) if direction > 0 else 0

    def end_of_round(self, number: int) -> int:
        """Return the position after a round; numbers out of range mean the nearest round."""
        if not self.rounds:
            return 0
        return self.rounds[min(len(self.rounds), max(1, number)) - 1].end

    def at_share(self, share: Fraction) -> int:
        """Return the position after the round at a share of all rounds, 0 to 1.

        The share is an exact fraction: a rounded one could select the round before.
        """
        if share >= 1 or not self.rounds:
            return len(self) if share >= 1 else 0
        return self.end_of_round(int(max(Fraction(), share) * len(self.rounds)) + 1)

    def view(self, position: int) -> Round | DraftProposed | None:
        """Return what a position shows on top of its state: a draft, or an uncommitted verdict."""
        moment = self.moments[position - 1] if position else None
        if moment is None or moment.phase not in ("draft", "verify"):
            return None
        if isinstance(moment.event, DraftVerified):
            before = self.moments[position - 2].event if position > 1 else None
            return Round(before if isinstance(before, DraftProposed) else None, moment.event)
        return moment.event if isinstance(moment.event, DraftProposed) else None

    def _ends_phase(self, position: int) -> bool:
        if self.moments[position - 1].phase != "prefill" or position == len(self):
            return True
        return self.moments[position].phase != "prefill"


def _moments(events: Iterable[Event]) -> Iterator[Moment]:
    start = now = 0.0
    fresh = True
    for event in events:
        if isinstance(event, TurnStarted | GenerationStarted):
            if not fresh:
                start = now = now + PAUSE_BETWEEN_REPLIES_S
            fresh = True
            yield Moment(now, "prefill", event)
            continue
        if isinstance(
            event, CostMeasured | SpeedupMeasured
        ):  # between replies: takes no time in a replay
            yield Moment(now, "end", event)
            continue
        fresh = False
        before, now = now, max(now, start + event.ts)  # bisection needs times in ascending order
        if isinstance(event, DraftVerified):
            yield Moment(min(now, before + max(0.0, event.ms) / 1e3), "verify", event)
        yield Moment(now, _phase(event), event)


def _phase(event: Event) -> Phase:
    if isinstance(event, PrefillProgress | TokensKept):
        return "prefill"
    if isinstance(event, DraftProposed):
        return "draft"
    return "commit" if isinstance(event, DraftVerified | PlainDecoded) else "end"


def _mark(end: int, reply: int, event: Event, draft: DraftProposed | None) -> RoundMark:
    if not isinstance(event, DraftVerified):
        return RoundMark(end, reply, None, is_rejection=False)
    nodes = draft.nodes if draft is not None and draft.r == event.r else ()
    last = event.path[-1] if event.path else 0
    rejected = any(node.parent == last for node in nodes)
    return RoundMark(end, reply, len(event.path), is_rejection=rejected)


def folded_events(moments: Sequence[Moment]) -> list[Event]:
    """Return the events by which the moments change a state."""
    return [moment.event for moment in moments if moment.is_folded]


class Playhead:
    """Recorded seconds that pass, pause or jump; an infinite speed plays all at once."""

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
