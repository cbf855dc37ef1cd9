"""A race of two recorded runs on one clock: the progress of each, and which one leads.

The runs were recorded one after the other, so neither slowed the other down. The race plays both
at their recorded times. Speeds exclude the prefill, as everywhere; the clock of the race does not.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Literal

from mlxspec.errors import TraceError
from mlxspec.trace.events import CostMeasured, Event, SpeedupMeasured
from mlxspec.trace.file import read_trace
from mlxspec.trace.stats import total
from mlxspec_app.conversation.figures import seconds
from mlxspec_app.conversation.fold import fold
from mlxspec_app.conversation.messages import Reply
from mlxspec_app.conversation.state import ChatState
from mlxspec_app.playback.checkpoints import Checkpoints
from mlxspec_app.playback.timeline import Playhead, Timeline, folded_events
from mlxspec_app.text.safe_text import safe_line

Lane = Literal["A", "B"]
_COMPARED = (CostMeasured, SpeedupMeasured)


@dataclass(frozen=True)
class Progress:
    """The progress of a run so far.

    `tokens` of `total` tokens were emitted. `generation_tps` leaves the prefill out.
    `acceptance_length` and `acceptance_rate` are None before the first drafted round. `at` is in
    recorded seconds, at most the length of the run.
    """

    tokens: int
    total: int
    generation_tps: float
    acceptance_length: float | None
    acceptance_rate: float | None
    at: float
    is_over: bool


class Track:
    """One run of a race, played up to a position.

    `timeline_events` are the events that are played: all but measurements. `state` is the chat
    state at the position, `total` the number of tokens that the whole run emits.
    """

    def __init__(self, lane: Lane, events: Iterable[Event]) -> None:
        self.lane = lane
        self.events = list(events)
        # A race has one ratio, that of its runs, so no reply is compared with idle forwards.
        self.timeline_events = [e for e in self.events if not isinstance(e, _COMPARED)]
        self.timeline = Timeline(self.timeline_events)
        self.state = ChatState()
        self._outcome = fold(self.events)
        self.total = total(reply.stats for reply in self.replies).generated_tokens
        self._checkpoints = Checkpoints(self.timeline)
        self._position = 0

    @classmethod
    def from_file(cls, lane: Lane, path: str | PathLike[str]) -> "Track":
        """Return the run in a trace file.

        Raises:
            TraceError: The file cannot be read, or contains no reply.
        """
        track = cls(lane, read_trace(path))
        if not track.total:
            raise TraceError(
                f"the trace {path} has no token of a reply; a race needs two recorded replies: "
                f"record them with --trace FILE"
            )
        return track

    @property
    def target(self) -> str:
        return safe_line(self._outcome.target) or "an unnamed target"

    @property
    def name(self) -> str:
        return safe_line(self._outcome.drafter) or "no drafter"

    @property
    def replies(self) -> list[Reply]:
        """The complete replies of the run."""
        return _replies(self._outcome)

    def show(self, now: float) -> None:
        """Move the state to a recorded time, forwards or backwards."""
        position = self.timeline.reached_at(now)
        if position < self._position:
            self.state = self._checkpoints.state_at(position)
        else:
            fold(folded_events(self.timeline.moments[self._position : position]), self.state)
        self._position = position

    def progress(self, now: float) -> Progress:
        """Return the progress at a recorded time, after `show` has moved the state there."""
        stats = total(reply.stats for reply in _replies(self.state))
        return Progress(
            stats.generated_tokens,
            self.total,
            stats.generation_tps,
            stats.mean_acceptance_length if stats.rounds else None,
            stats.acceptance_rate if stats.rounds else None,
            min(now, self.timeline.duration),
            self._position >= len(self.timeline),
        )


class Race:
    """Two tracks, A first, and the clock that they share."""

    def __init__(self, tracks: Sequence[Track], clock: Callable[[], float]) -> None:
        self.tracks = tuple(tracks)
        self.playhead = Playhead(clock)

    @property
    def duration(self) -> float:
        """Recorded seconds until the longer run is over."""
        return max(track.timeline.duration for track in self.tracks)

    @property
    def is_over(self) -> bool:
        return self.playhead.now >= self.duration

    def tick(self) -> None:
        """Move both runs to the present time of the playhead."""
        now = self.playhead.tick(running=not self.is_over)
        for track in self.tracks:
            track.show(now)

    def go_to(self, now: float) -> None:
        """Move both runs to a recorded time, clipped to the length of the race."""
        self.playhead.jump(min(self.duration, max(0.0, now)))
        self.tick()

    def move(self, direction: Literal[1, -1]) -> None:
        """Pause, and go to the next or the previous end of a round of either run."""
        self.playhead.paused = True
        now = self.playhead.now
        ends = [t.timeline.time_of(mark.end) for t in self.tracks for mark in t.timeline.rounds]
        if direction > 0:
            self.go_to(min((end for end in ends if end > now), default=self.duration))
        else:
            self.go_to(max((end for end in ends if end < now), default=0.0))

    def progress(self) -> list[Progress]:
        return [track.progress(self.playhead.now) for track in self.tracks]


def lead(progress: Sequence[Progress]) -> str:
    """Return which run leads, and by how much, as text."""
    a, b = progress
    if a.is_over and b.is_over:
        return _outcome(a, b)
    if a.is_over or b.is_over:
        done, behind = ("A", b) if a.is_over else ("B", a)
        return f"{done} is done, the other has {_tokens(behind.total - behind.tokens)} to go"
    if a.tokens == b.tokens:
        return "level" if a.tokens else "reading the prompt"
    ahead = "A" if a.tokens > b.tokens else "B"
    return f"{ahead} leads by {_tokens(abs(a.tokens - b.tokens))}"


def acceptance(progress: Progress) -> str:
    """Return the mean acceptance length as text."""
    if progress.acceptance_length is None:
        return "no drafts"
    return f"mean length {progress.acceptance_length:.2f}"


def _outcome(a: Progress, b: Progress) -> str:
    if a.at == b.at:
        return f"a tie: both finished after {seconds(a.at)}"
    first = "A" if a.at < b.at else "B"
    line = f"{first} finished {seconds(abs(a.at - b.at))} earlier"
    won, lost = (a, b) if first == "A" else (b, a)
    if not (won.generation_tps and lost.generation_tps):
        return line
    return f"{line}, at {won.generation_tps / lost.generation_tps:.2f} times the speed"


def _tokens(number: int) -> str:
    return "1 token" if number == 1 else f"{number} tokens"


def open_race(paths: Sequence[str | PathLike[str]], clock: Callable[[], float]) -> Race:
    """Return the race between two trace files.

    Raises:
        TraceError: A file cannot be read, or contains no reply.
    """
    first, second = paths
    return Race([Track.from_file("A", first), Track.from_file("B", second)], clock)


def _replies(state: ChatState) -> list[Reply]:
    return [message for message in state.messages if isinstance(message, Reply)]
