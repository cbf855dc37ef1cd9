"""The timeline of a recording: moments, phases and rounds; its states, and its playhead.

A *moment* is the smallest step of a replay. Each event is one moment; a verdict is two: first the
screen shows it (`verify`), then the text grows by it (`commit`). A *position* is the number of
moments shown, from 0 to all of them. The numbers of rounds start at 1 and run over all replies,
plain rounds included.
"""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from itertools import pairwise
from typing import Any, Literal

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
from mlxspec.trace.stats import GenerationStats
from mlxspec_app.conversation.events import AnyEvent
from mlxspec_app.conversation.fold import fold
from mlxspec_app.conversation.messages import Reply
from mlxspec_app.conversation.rounds import Pace, Round
from mlxspec_app.conversation.state import ChatState

PAUSE_BETWEEN_REPLIES_S = 1.0
SPEEDS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0)
_SPACING = 256  # at most this number of moments between two states that are kept

Phase = Literal["prefill", "draft", "verify", "commit", "end"]
"""`prefill`: from the user's turn to the end of the prefill; `draft`: the drafter has proposed;
`verify`: the target has verified; `commit`: the text has grown; `end`: the reply is over, or the
cost of forwards was measured."""

Unit = Literal["phase", "round", "rejection"]
"""The unit of a move; a rejection is a round whose draft continued after the accepted nodes."""


@dataclass(frozen=True)
class Moment:
    """The smallest step of a replay; a `verify` and its `commit` have the same event."""

    at: float  # seconds since the recording began
    phase: Phase
    event: Event


@dataclass(frozen=True)
class RoundMark:
    """The part of a round that a scrubber and the moves need."""

    end: int  # position after its commit
    reply: int  # number from 1
    accepted: int | None  # None in a plain round
    is_rejection: bool  # the last accepted node has children, all of them rejected


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
        phases = [*(moment.phase for moment in self.moments), "end"]
        self._stops: dict[Unit, list[int]] = {
            "phase": [
                position
                for position, (phase, following) in enumerate(pairwise(phases), 1)
                if (phase, following) != ("prefill", "prefill")
            ],
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
        return self._times[position - 1] if position else 0.0

    def reached_at(self, seconds: float) -> int:
        return bisect_right(self._times, seconds)

    def events(self, start: int, end: int) -> list[Event]:
        """Return the events by which the state changes from one position to a later one."""
        # a verdict changes it with its commit
        return [moment.event for moment in self.moments[start:end] if moment.phase != "verify"]

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
        """Return the position after the round at a share of all rounds.

        The share is an exact fraction: a rounded one could select the round before.
        """
        return self.end_of_round(int(share * len(self.rounds)) + 1)

    def view(self, position: int) -> Round | DraftProposed | None:
        """Return what a position shows on top of its state: a draft, or an uncommitted verdict."""
        moment = self.moments[position - 1] if position else None
        if moment is None or moment.phase not in ("draft", "verify"):
            return None
        if isinstance(moment.event, DraftVerified):
            before = self.moments[position - 2].event if position > 1 else None
            return Round(before if isinstance(before, DraftProposed) else None, moment.event)
        return moment.event if isinstance(moment.event, DraftProposed) else None


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
        if isinstance(event, CostMeasured | SpeedupMeasured):  # takes no time in a replay
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


class Checkpoints:
    """Returns the state at any position of a timeline at the cost of a few events.

    A fold cannot be undone, so a move back folds again, from the nearest state that was kept. All
    of them share every message that can no longer change.
    """

    def __init__(self, timeline: Timeline, opening: Iterable[AnyEvent] = ()) -> None:
        """`opening` are the events of the session before the recording starts."""
        self._timeline = timeline
        kept = {0, *range(0, len(timeline), _SPACING)}
        for position, (before, after) in enumerate(pairwise(timeline.moments), 1):
            # also around each reply, so that others are shared
            if before.phase != after.phase and "prefill" in (before.phase, after.phase):
                kept.add(position)
        self._positions = sorted(kept)
        self._saved = [fold(opening)]

    def state_at(self, position: int) -> ChatState:
        """Return the state at a position; the caller may change it.

        Messages have the same numbers in each call. A reply that is not finished at the position
        is a copy with the same number as the finished one, and with perhaps fewer spans.
        """
        nearest = bisect_right(self._positions, position) - 1
        for start, end in pairwise(self._positions[len(self._saved) - 1 : nearest + 1]):
            self._saved.append(self._folded(self._saved[-1], start, end))
        return self._folded(self._saved[nearest], self._positions[nearest], position)

    def _folded(self, state: ChatState, start: int, end: int) -> ChatState:
        copied: ChatState = _copy(state)
        last = copied.messages[-1] if copied.messages else None
        if isinstance(last, Reply) and not last.is_finished:
            copied.messages[-1] = _copy(last)
        return fold(self._timeline.events(start, end), copied)


def _copy(record: Any) -> Any:
    """Return a copy that is safe to change; the items of its lists and dicts are not copied."""
    changes: dict[str, Any] = {}
    for item in fields(record):
        value = getattr(record, item.name)
        if isinstance(value, list | dict):
            changes[item.name] = value.copy()
        elif isinstance(value, GenerationStats | Pace):
            changes[item.name] = _copy(value)
    return replace(record, **changes)


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
        if direction == "faster":
            self.speed = min((s for s in SPEEDS if s > self.speed), default=self.speed)
        else:
            self.speed = max((s for s in SPEEDS if s < self.speed), default=self.speed)
