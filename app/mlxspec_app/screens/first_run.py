"""The first run: a recorded race, and the first keys to learn, while the model loads."""

import re
import time
from collections.abc import Mapping
from typing import ClassVar

from textual import events, getters
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container, Vertical, VerticalScroll
from textual.content import Content
from textual.widgets import Static

from mlxspec.errors import TraceError
from mlxspec_app.app import MlxspecApp
from mlxspec_app.conversation.figures import ratio_words, seconds
from mlxspec_app.conversation.state import ChatState
from mlxspec_app.frames import frames_per_s
from mlxspec_app.playback.demo import read_bundled
from mlxspec_app.playback.race import Race, Track
from mlxspec_app.screens.steady import SteadyModal
from mlxspec_app.settings.keys.choices import shown_keys
from mlxspec_app.settings.keys.tables import CHAT
from mlxspec_app.text.safe_text import safe_line
from mlxspec_app.widgets.chat.key_footer import KeyFooter
from mlxspec_app.widgets.chat.token_message import TokenMessage
from mlxspec_app.widgets.chat.welcome import loading_rows

_MUTED = "$spec-muted"
_MARKS = re.compile(r"\((R|TM)\)| (Processor|CPU)\b")  # they fill a narrow row
_EXPLANATION = Content.assemble(
    ("A drafter guesses the next words; the model checks several at once. ", _MUTED),
    ("Guesses that it agrees with have this colour.", "$spec-guess"),
)
_LEAST_CELLS = 50  # for two lanes side by side
_TITLE = "The same reply, by the model alone and with guesses"
_NEWS_PER_S = 5
_KEY_CELLS = 8
_KEYS = (  # a binding id or a text to type, and its effect
    ("Enter", "send a message"),
    ("view.ink", "the X-ray: who wrote each word, and how sure"),
    ("/race", "a race like this one, with your own prompt"),
    ("chat.model", "other models"),
    ("app.help", "help: all keys, commands and colours"),
)


class _Lane(Vertical):
    """A name, the seconds so far, and the text."""

    def compose(self) -> ComposeResult:
        yield Static()
        with VerticalScroll(can_focus=False):
            yield TokenMessage()

    def on_mount(self) -> None:
        self.query_one(VerticalScroll).anchor()

    def show(self, track: Track) -> None:
        clock = seconds(track.at) + (", done" if track.is_over else "")
        heading = Content.assemble((track.name, "$foreground bold"), (f"  {clock}", _MUTED))
        self.query_one(Static).update(heading)
        reply = track.state.reply
        if reply is not None:
            message = self.query_one(TokenMessage)
            message.extend(reply.spans[message.num_spans :])
            message.set_streaming(not reply.is_finished)


class RecordedRace(Vertical):
    """Plays the race once; without animations it shows the end at once."""

    app = getters.app(MlxspecApp)

    def __init__(self) -> None:
        super().__init__()
        self._race: Race | None = None

    def compose(self) -> ComposeResult:
        yield Static(_EXPLANATION)
        with Container():
            yield _Lane()
            yield _Lane()
        yield Static(id="outcome")

    def on_mount(self) -> None:
        self.set_interval(1 / frames_per_s(self.app.settings), self.tick)
        self._begin()

    def on_resize(self, event: events.Resize) -> None:
        self.set_class(event.size.width < _LEAST_CELLS, "-stacked")

    def _begin(self) -> None:
        try:
            tracks = Track("A", read_bundled("code-plain")), Track("B", read_bundled("code"))
        except TraceError as error:
            self.query_one("#outcome", Static).update(Content(safe_line(str(error))))
            return
        self._race = race = Race(tracks, time.monotonic)
        race.go_to(race.duration if self.app.animation_level == "none" else 0.0)
        self._show(race)

    def tick(self) -> None:
        race = self._race
        if race is not None and not race.is_over:
            race.tick()
            self._show(race)

    def _show(self, race: Race) -> None:
        for lane, track in zip(self.query(_Lane), race.tracks, strict=True):
            lane.show(track)
        self.query_one("#outcome", Static).update(_outcome(race))


def _outcome(race: Race) -> Content:
    """Return how much faster the second run was, and where both were recorded."""
    started = next((r.started for r in race.tracks[0].replies if r.started is not None), None)
    device = _MARKS.sub("", safe_line(started.device)).strip() if started else ""
    where = f"recorded earlier on {device}" if started else "recorded earlier"
    if not race.is_over:
        return Content.styled(where, _MUTED)
    alone, guessed = (track.stats for track in race.tracks)
    times = guessed.generation_tps / alone.generation_tps if alone.generation_tps else 0.0
    text = "The same text" if race.agreement.kind == "identical" else "Both texts"
    return Content.assemble(
        (f"{text}, {ratio_words(times)}", "$foreground bold"), (f"  {where}", _MUTED)
    )


class FirstRunScreen(SteadyModal[None]):
    """Shown once, before the first chat."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter,escape,space", "dismiss", "Start", priority=True),
    ]

    def __init__(self, state: ChatState) -> None:
        """`state` changes while the model loads."""
        super().__init__()
        self._state = state

    def compose(self) -> ComposeResult:
        with VerticalScroll():
            yield Static(Content.styled(_TITLE, "$foreground bold"), id="title")
            yield RecordedRace()
            yield Static(_keys(self.app.keys), id="keys")
        yield Static(id="loading")
        yield KeyFooter()

    def on_mount(self) -> None:
        self.set_interval(1 / _NEWS_PER_S, self.tick)
        self.tick()

    def tick(self) -> None:
        self.query_one("#loading", Static).update(_progress(self._state))


def _keys(chosen: Mapping[str, str]) -> Content:
    """Return the first keys to learn, as the user's key map has them."""
    bindings = {binding.id: binding for binding in CHAT}
    rows = []
    for name, meaning in _KEYS:
        binding = bindings.get(name)
        key = shown_keys(binding, chosen.get(name, "")) if binding is not None else name
        rows.append(Content.assemble((f"{key:<{_KEY_CELLS}}", "$foreground"), (meaning, _MUTED)))
    return Content("\n").join(rows)


def _progress(state: ChatState) -> Content:
    if state.phase == "loading":
        return loading_rows(state)
    if state.phase == "failed":
        return Content.styled(f"✗ {safe_line(state.error)}", "$spec-rejected")
    return Content.styled("the model is ready", "$spec-accepted")
