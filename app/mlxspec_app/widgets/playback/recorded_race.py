"""The race bundled with mlxspec, in plain words: the model alone, and the model with guesses.

It plays at its recorded speed and needs no model. Each lane follows its newest text.
"""

import re
import time

from textual import events, getters
from textual.app import ComposeResult
from textual.containers import Container, Vertical, VerticalScroll
from textual.content import Content
from textual.widgets import Static

from mlxspec.errors import TraceError
from mlxspec_app.app import MlxspecApp
from mlxspec_app.conversation.figures import seconds
from mlxspec_app.conversation.views import COLOURS
from mlxspec_app.frames import frames_per_s
from mlxspec_app.playback.compare import compare
from mlxspec_app.playback.demo import read_bundled
from mlxspec_app.playback.race import Race, Track
from mlxspec_app.text.safe_text import safe_line
from mlxspec_app.widgets.chat.token_message import TokenMessage

_MUTED = "$spec-muted"
_NAMES = ("model alone", "with guesses")
_MARKS = re.compile(r"\((R|TM)\)| (Processor|CPU)\b")
_LEAST_CELLS = 50  # for two lanes side by side


class _Text(VerticalScroll, can_focus=False):
    """The text of a lane, which scrolls to its end."""

    def compose(self) -> ComposeResult:
        yield TokenMessage(view=COLOURS)


class _Lane(Vertical):
    """A name, the seconds so far, and the text."""

    def compose(self) -> ComposeResult:
        yield Static()
        yield _Text()

    def on_mount(self) -> None:
        self.query_one(_Text).anchor()

    def show(self, name: str, track: Track) -> None:
        clock = seconds(track.at) + (", done" if track.is_over else "")
        heading = Content.assemble((name, "$foreground bold"), (f"  {clock}", _MUTED))
        self.query_one(Static).update(heading)
        reply = track.state.reply
        if reply is not None:
            message = self.query_one(TokenMessage)
            message.extend(reply.spans[message.num_spans :])
            message.set_streaming(not reply.is_finished)


class RecordedRace(Vertical):
    """Plays the race once; without animations it shows the end at once."""

    app = getters.app(MlxspecApp)

    DEFAULT_CSS = """
    RecordedRace { height: 13; }
    .-tall RecordedRace { height: 15; }
    RecordedRace {
        & > Static { height: auto; margin: 0 0 1 0; }
        & > #outcome { text-wrap: nowrap; text-overflow: ellipsis; }
        &.-stacked > #outcome { text-wrap: wrap; }
        & > Container { layout: horizontal; height: 1fr; margin: 0 0 1 0; }
        &.-stacked { height: 22; }
        &.-stacked > Container { layout: vertical; }
        & _Lane { width: 1fr; height: 1fr; padding: 0 1 0 0; }
        & _Lane > Static { height: 1; text-wrap: nowrap; text-overflow: ellipsis; }
        & _Text { height: 1fr; scrollbar-size: 0 0; }
    }
    """

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._race: Race | None = None
        self._is_same = False

    def compose(self) -> ComposeResult:
        yield Static(_explanation(), id="explanation")
        with Container():
            yield _Lane()
            yield _Lane()
        yield Static(id="outcome")

    def on_mount(self) -> None:
        self.set_interval(1 / frames_per_s(self.app.settings), self.tick)

    def on_resize(self, event: events.Resize) -> None:
        self.set_class(event.size.width < _LEAST_CELLS, "-stacked")

    def begin(self) -> None:
        """Play from the start; later calls do nothing."""
        if self._race is not None:
            return
        try:
            tracks = Track("A", read_bundled("code-plain")), Track("B", read_bundled("code"))
        except TraceError as error:
            self.query_one("#outcome", Static).update(Content(safe_line(str(error))))
            return
        race = Race(tracks, time.monotonic)
        verdict = compare(*(track.events for track in race.tracks))
        self._race, self._is_same = race, verdict.kind == "identical"
        race.go_to(race.duration if self.app.animation_level == "none" else 0.0)
        self._show(race)

    def tick(self) -> None:
        """Show the text up to the present time."""
        race = self._race
        if race is not None and not race.is_over:
            race.tick()
            self._show(race)

    def _show(self, race: Race) -> None:
        for lane, name, track in zip(self.query(_Lane), _NAMES, race.tracks, strict=True):
            lane.show(name, track)
        outcome = _outcome(race, is_same=self._is_same)
        self.query_one("#outcome", Static).update(outcome)


def _explanation() -> Content:
    return Content.assemble(
        ("A drafter guesses the next words; the model checks several at once. ", _MUTED),
        ("Guesses that it agrees with have this colour.", "$spec-guess"),
    )


def _short(device: str) -> str:
    """Return the name of a processor without the marks that fill a narrow row."""
    return _MARKS.sub("", safe_line(device)).strip()


def _outcome(race: Race, *, is_same: bool) -> Content:
    """Return how much faster the second run was, and where both were recorded."""
    started = next((r.started for r in race.tracks[0].replies if r.started is not None), None)
    where = f"recorded earlier on {_short(started.device)}" if started else "recorded earlier"
    if not race.is_over:
        return Content.styled(where, _MUTED)
    alone, guessed = (track.stats for track in race.tracks)
    times = guessed.generation_tps / alone.generation_tps if alone.generation_tps else 0.0
    text = "The same text" if is_same else "Both texts"
    return Content.assemble(
        (f"{text}, {times:.1f} times as fast", "$foreground bold"), (f"  {where}", _MUTED)
    )
