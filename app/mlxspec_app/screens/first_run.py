"""The first run: the machine, the model and a recorded race, on three cards that can be skipped.

The model loads meanwhile; its progress is below the cards.
"""

import re
import time
from collections.abc import Callable, Mapping
from typing import ClassVar

from textual import events, getters
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container, Vertical, VerticalScroll
from textual.content import Content
from textual.widgets import ContentSwitcher, Static

from mlxspec.errors import TraceError
from mlxspec_app.app import MlxspecApp
from mlxspec_app.conversation.figures import ratio_words, seconds
from mlxspec_app.conversation.state import ChatState
from mlxspec_app.conversation.views import COLOURS
from mlxspec_app.frames import frames_per_s
from mlxspec_app.picker.catalogue import Cards
from mlxspec_app.playback.compare import compare
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
_NAMES = ("model alone", "with guesses")
_MARKS = re.compile(r"\((R|TM)\)| (Processor|CPU)\b")  # they fill a narrow row
_EXPLANATION = Content.assemble(
    ("A drafter guesses the next words; the model checks several at once. ", _MUTED),
    ("Guesses that it agrees with have this colour.", "$spec-guess"),
)
_LEAST_CELLS = 50  # for two lanes side by side
_CARDS = {  # and their titles
    "machine": "This machine",
    "model": "The model that will answer",
    "race": "The same reply, with guesses and without",
}
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
            yield TokenMessage(view=COLOURS)

    def on_mount(self) -> None:
        self.query_one(VerticalScroll).anchor()

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

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._race: Race | None = None
        self._is_same = False

    def compose(self) -> ComposeResult:
        yield Static(_EXPLANATION)
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
        race = self._race
        if race is not None and not race.is_over:
            race.tick()
            self._show(race)

    def _show(self, race: Race) -> None:
        for lane, name, track in zip(self.query(_Lane), _NAMES, race.tracks, strict=True):
            lane.show(name, track)
        outcome = _outcome(race, is_same=self._is_same)
        self.query_one("#outcome", Static).update(outcome)


def _outcome(race: Race, *, is_same: bool) -> Content:
    """Return how much faster the second run was, and where both were recorded."""
    started = next((r.started for r in race.tracks[0].replies if r.started is not None), None)
    device = _MARKS.sub("", safe_line(started.device)).strip() if started else ""
    where = f"recorded earlier on {device}" if started else "recorded earlier"
    if not race.is_over:
        return Content.styled(where, _MUTED)
    alone, guessed = (track.stats for track in race.tracks)
    times = guessed.generation_tps / alone.generation_tps if alone.generation_tps else 0.0
    text = "The same text" if is_same else "Both texts"
    return Content.assemble(
        (f"{text}, {ratio_words(times)}", "$foreground bold"), (f"  {where}", _MUTED)
    )


class FirstRunScreen(SteadyModal[None]):
    """Shown once, before the first chat."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter,right,space", "turn(1)", "Next", priority=True),
        Binding("left", "turn(-1)", "Back", priority=True, key_display="←"),
        Binding("escape", "dismiss", "Skip"),
    ]

    def __init__(self, find_facts: Callable[[], Cards], state: ChatState) -> None:
        """A thread calls `find_facts`, which can be slow; `state` changes while the model loads."""
        super().__init__()
        self._find_facts = find_facts
        self._state = state

    def compose(self) -> ComposeResult:
        with VerticalScroll():
            yield Static(id="card-title")
            with ContentSwitcher(initial="machine"):
                yield Static("looking …", id="machine")
                yield Static("looking …", id="model")
                with Vertical(id="race"):
                    yield RecordedRace()
                    yield Static(_keys(self.app.keys), id="keys")
        yield Static(id="loading")
        yield KeyFooter()

    def on_mount(self) -> None:
        self.run_worker(self._look, thread=True, exit_on_error=False)
        self.set_interval(1 / _NEWS_PER_S, self.tick)
        self._show_title()
        self.tick()

    def tick(self) -> None:
        self.query_one("#loading", Static).update(_progress(self._state))

    def action_turn(self, step: int) -> None:
        cards, names = self.query_one(ContentSwitcher), list(_CARDS)
        index = names.index(cards.current or "machine") + step
        if index >= len(names):
            self.dismiss()
            return
        cards.current = names[max(0, index)]
        self._show_title()
        if cards.current == "race":
            self.query_one(RecordedRace).begin()

    def _show_title(self) -> None:
        current = self.query_one(ContentSwitcher).current or "machine"
        number = f"{list(_CARDS).index(current) + 1} of {len(_CARDS)}  "
        title = Content.assemble((number, _MUTED), (_CARDS[current], "$foreground bold"))
        self.query_one("#card-title", Static).update(title)

    def _look(self) -> None:
        facts = self._find_facts()
        if self.is_mounted:
            self.app.call_from_thread(self._show_facts, facts)

    def _show_facts(self, facts: Cards) -> None:
        for card, lines in facts.items():
            first, *rest = (safe_line(line) for line in lines)
            text = Content.assemble((first, "$foreground"), ("\n\n" + "\n".join(rest), _MUTED))
            # a query may find nothing: the user can close the cards before the facts come
            for widget in self.query(f"#{card}").results(Static):
                widget.update(text)


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
