"""A race of two recorded runs on one clock: the progress of each, and which one leads.

The runs were recorded one after the other, so neither slowed the other down. The race plays both
at their recorded times. Speeds exclude the prefill, as everywhere; the clock of the race does not.
If one run has no guesses, the runs are named for that, else by lane and drafter.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from os import PathLike
from typing import Literal

from mlxspec.errors import TraceError
from mlxspec.trace.events import CostMeasured, Event, GenerationFinished, SpeedupMeasured
from mlxspec.trace.file import read_trace
from mlxspec.trace.stats import GenerationStats, total
from mlxspec_app.conversation.figures import ratio_words, seconds
from mlxspec_app.conversation.fold import fold
from mlxspec_app.conversation.messages import Reply
from mlxspec_app.conversation.state import ChatState
from mlxspec_app.playback.compare import Agreement, compare
from mlxspec_app.playback.timeline import Checkpoints, Playhead, Timeline
from mlxspec_app.text.safe_text import safe_line

Lane = Literal["A", "B"]
ALONE, GUESSED = "model alone", "with guesses"
_COMPARED = (CostMeasured, SpeedupMeasured)


class Track:
    """One run of a race, played up to a position.

    `state` is the chat state there, and `stats` are the figures of its replies: `generation_tps`
    leaves the prefill out. `at` is in recorded seconds, at most the length of the run. A race sets
    `name`.
    """

    def __init__(self, lane: Lane, events: Iterable[Event]) -> None:
        self.lane = lane
        self.name: str = lane
        self.events = list(events)
        self.state, self.stats, self.at = ChatState(), GenerationStats(), 0.0
        self.lay_out()
        self._position = 0

    def record(self, event: Event) -> None:
        """Add an event of a run that is being recorded, and show it; `lay_out` comes last."""
        self.events.append(event)
        self._outcome = fold([event], self.state)
        self.stats, self.at = _stats(self.state), getattr(event, "ts", self.at)
        if isinstance(event, GenerationFinished):
            self.total = self.tokens

    def lay_out(self) -> None:
        """Lay the events out on the clock; what was recorded stays in view."""
        # A race has one ratio, that of its runs, so no reply is compared with idle forwards.
        self.timeline_events = [e for e in self.events if not isinstance(e, _COMPARED)]
        self.timeline = Timeline(self.timeline_events)
        self._outcome = fold(self.events)
        self.total = _stats(self._outcome).generated_tokens
        self._checkpoints = Checkpoints(self.timeline)
        self._position = len(self.timeline)

    @classmethod
    def from_file(cls, lane: Lane, path: str | PathLike[str]) -> "Track":
        """Return the run in a trace file; raise `TraceError` if it contains no reply."""
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
    def drafter(self) -> str:
        return safe_line(self._outcome.drafter) or "no drafter"

    @property
    def has_guesses(self) -> bool:
        return bool(_stats(self._outcome).rounds)

    @property
    def replies(self) -> list[Reply]:
        """The complete replies of the run."""
        return _replies(self._outcome)

    @property
    def tokens(self) -> int:
        return self.stats.generated_tokens

    @property
    def is_over(self) -> bool:
        return self.tokens >= self.total and self._position >= len(self.timeline)

    def show(self, now: float) -> None:
        """Move to a recorded time, forwards or backwards."""
        position = self.timeline.reached_at(now)
        if position < self._position:
            self.state = self._checkpoints.state_at(position)
        else:
            fold(self.timeline.events(self._position, position), self.state)
        self._position, self.at = position, min(now, self.timeline.duration)
        self.stats = _stats(self.state)


class Race:
    """Two tracks, A first, and the clock that they share."""

    def __init__(self, tracks: Sequence[Track], clock: Callable[[], float]) -> None:
        self.tracks = tuple(tracks)
        self.playhead = Playhead(clock)
        self.is_recording = False
        a, b = self.tracks
        for track in self.tracks:
            side = GUESSED if track.has_guesses else ALONE
            is_told = a.has_guesses != b.has_guesses
            track.name = side if is_told else f"{track.lane} ({track.drafter})"

    @cached_property
    def agreement(self) -> Agreement:
        """Whether the texts of both runs agree."""
        a, b = self.tracks
        return compare(a.events, b.events, (a.name, b.name))

    @classmethod
    def live(cls, max_tokens: int, clock: Callable[[], float]) -> "Race":
        """Return a race without runs: `Track.record` adds events, and `finish` the clock."""
        race = cls([Track("A", ()), Track("B", ())], clock)
        race.is_recording = True
        for track, name in zip(race.tracks, (ALONE, GUESSED), strict=True):
            track.total, track.name = max_tokens, name
        return race

    def finish(self) -> None:
        """Lay both runs out on one clock, and show their ends."""
        self.is_recording = False
        for track in self.tracks:
            track.lay_out()
        self.go_to(self.duration)

    @property
    def duration(self) -> float:
        """Recorded seconds until the longer run is over."""
        return max(track.timeline.duration for track in self.tracks)

    @property
    def is_over(self) -> bool:
        return not self.is_recording and self.playhead.now >= self.duration

    def tick(self) -> None:
        if self.is_recording:
            return
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


def open_race(paths: Sequence[str | PathLike[str]], clock: Callable[[], float]) -> Race:
    """Return the race between two trace files; raise `TraceError` if one contains no reply."""
    first, second = paths
    return Race([Track.from_file("A", first), Track.from_file("B", second)], clock)


def lead(tracks: Sequence[Track]) -> str:
    """Return which of two runs leads, and by how much, as text."""
    a, b = tracks
    if a.is_over and b.is_over:
        return _outcome(a, b)
    if a.is_over or b.is_over:
        done, behind = (a, b) if a.is_over else (b, a)
        return f"{done.name} is done, the other has {_tokens(behind.total - behind.tokens)} to go"
    if a.tokens == b.tokens:
        return "level" if a.tokens else "reading the prompt"
    ahead = a if a.tokens > b.tokens else b
    return f"{ahead.name} leads by {_tokens(abs(a.tokens - b.tokens))}"


def _outcome(a: Track, b: Track) -> str:
    if a.at == b.at:
        return f"a tie: both finished after {seconds(a.at)}"
    won, lost = (a, b) if a.at < b.at else (b, a)
    line = f"{won.name} finished {seconds(lost.at - won.at)} earlier"
    if not (won.stats.generation_tps and lost.stats.generation_tps):
        return line
    ratio = won.stats.generation_tps / lost.stats.generation_tps
    return f"{line}, at {ratio_words(ratio)}"


def acceptance(stats: GenerationStats) -> str:
    """Return the mean acceptance length as text."""
    return f"mean length {stats.mean_acceptance_length:.2f}" if stats.rounds else "no drafts"


def _tokens(number: int) -> str:
    return "1 token" if number == 1 else f"{number} tokens"


def _stats(state: ChatState) -> GenerationStats:
    return total(reply.stats for reply in _replies(state))


def _replies(state: ChatState) -> list[Reply]:
    return [message for message in state.messages if isinstance(message, Reply)]
