"""The race screen: two recordings side by side on one clock."""

from collections.abc import Callable
from pathlib import Path
from typing import ClassVar, Literal

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Container, Vertical
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Static

from mlxspec_app.conversation.figures import Part, fitting, guessed
from mlxspec_app.conversation.views import CALM, Ink, View, ink_named, other_view, view_named
from mlxspec_app.frames import frames_per_s
from mlxspec_app.playback.race import Race, Track, acceptance, lead
from mlxspec_app.screens.dialogs import explain
from mlxspec_app.screens.help import HelpScreen
from mlxspec_app.screens.steady import SteadyScreen
from mlxspec_app.settings.keys.choices import key_list
from mlxspec_app.settings.keys.tables import RACE, RACE_BACK
from mlxspec_app.text.safe_text import safe_line
from mlxspec_app.widgets.chat.explained import Explained
from mlxspec_app.widgets.chat.key_footer import KeyFooter
from mlxspec_app.widgets.chat.transcript import Transcript

_GAP = "   "
_SIGNS = {
    "identical": ("✓", "$spec-accepted"),
    "differs": ("✗", "$spec-rejected"),
    "sampled": ("≈", "$foreground"),
    "incomparable": ("!", "$spec-corrected"),
}
_NAME_CELLS = 24
_LEAST_BAR_CELLS = 8
_SEPARATOR = " · "
_OF_PLAYERS = ("pause", "move", "speed", "rewind", "wind", "export")
FIGURES_PER_S = 5


class RaceBar(Widget):
    """Two rows below the lanes; the agreement is visible from the start."""

    def __init__(self, race: Race) -> None:
        super().__init__()
        self._race = race

    def render(self) -> Content:
        if self._race.is_recording:
            is_second = self._race.tracks[0].is_over
            now = "now with guesses" if is_second else "first the model alone, then with guesses"
            stop = ("\n  Esc stops it and goes back", "$spec-muted")
            return Content.assemble(("● ", "$spec-accepted bold"), (now, "$foreground"), stop)
        found = self._race.agreement
        sign, style = _SIGNS[found.kind]
        row = Content.assemble((f"{sign} ", f"{style} bold"), (found.line, style))
        return Content("\n").join([self._position_row(), row])

    def _position_row(self) -> Content:
        """Return the clock in one row; a second row would move the agreement."""
        race, width = self._race, max(1, self.size.width)
        now = min(race.playhead.now, race.duration)
        sign = "‖ paused" if race.playhead.paused else "▶"
        parts = [
            Part("■ end" if race.is_over else f"{sign} {race.playhead.speed:g}\u00d7"),
            Part(f"{now:.1f} of {race.duration:.1f} s", 1),
            Part(lead(race.tracks)),
        ]
        shown = fitting(parts, width, len(_GAP))
        styles = {0: "$foreground", 1: "$spec-muted"}
        row = Content(_GAP).join(Content.styled(part.text, styles[part.rank]) for part in shown)
        return row.truncate(width, ellipsis=True)


class _Figures(Static, Explained):
    """The rows above the text."""


class RaceLane(Vertical):
    """Shows one run: a progress bar, its figures, and its conversation."""

    def __init__(self, track: Track) -> None:
        super().__init__()
        self._track = track
        self._view = CALM

    def compose(self) -> ComposeResult:
        yield _Figures()
        yield Transcript()

    def show_text(self) -> None:
        self.query_one(Transcript).sync(self._track.state.messages)

    def show_figures(self) -> None:
        width = max(1, self.size.width - 2)
        rows = [_bar_row(self._track, width), self._figures_row(width)]
        self.query_one(Static).update(Content("\n").join(rows))
        self.query_one(Transcript).update_footers()

    def set_view(self, view: View, ink: Ink) -> None:
        self._view = view
        self.query_one(Transcript).set_view(view, ink)

    def _figures_row(self, width: int) -> Content:
        track, stats = self._track, self._track.stats
        drafts = [Part(guessed(stats), 1)]
        if not self._view.is_rendered:
            drafts = [Part(acceptance(stats), 1), Part(track.drafter, 3)]
        parts = [Part(f"{stats.generation_tps:.1f} tokens/s"), *drafts, Part(f"{track.at:.1f} s")]
        shown = fitting([*parts, *[Part("done", 2)] * track.is_over], width, len(_SEPARATOR))
        return Content.styled(_SEPARATOR.join(part.text for part in shown), "$spec-muted")


def _bar_row(track: Track, width: int) -> Content:
    tint = "$spec-guess" if track.has_guesses else "$foreground"
    name = Content.styled(track.name, f"{tint} bold").truncate(_NAME_CELLS, ellipsis=True)
    count = Content.styled(f"{track.tokens}/{track.total} tok", "$foreground")
    cells = width - name.cell_length - count.cell_length - 4
    if cells < _LEAST_BAR_CELLS:
        return name + Content("  ") + count
    share = track.tokens / track.total if track.total else 0.0
    full, half = divmod(round(share * cells * 2), 2)
    drawn = Content.assemble(
        ("━" * full + "╸" * half, "$foreground"), ("─" * (cells - full - half), "$spec-line")
    )
    return Content("  ").join([name, drawn, count])


class RaceScreen(SteadyScreen[None]):
    """Plays a race; in a narrow terminal one lane is below the other."""

    BINDINGS: ClassVar[list[BindingType]] = list(RACE)
    AUTO_FOCUS = ""

    def __init__(self, race: Race) -> None:
        super().__init__()
        self.race = race

    def compose(self) -> ComposeResult:
        yield Static(self._title(), id="race-title")
        with Container(id="lanes"):
            for track in self.race.tracks:
                yield RaceLane(track)
        yield RaceBar(self.race)
        yield KeyFooter()

    def on_mount(self) -> None:
        if not self.race.is_recording:
            self.race.go_to(0.0)
        self._use_view(view_named(self.app.settings.view))
        self.set_interval(1 / frames_per_s(self.app.settings), self.tick)
        self.race.playhead.paused = self.app.animation_level == "none"  # then a key starts it
        self.set_interval(1 / FIGURES_PER_S, self.update_panels)
        self.call_after_refresh(self._show_now)

    def on_resize(self) -> None:
        self.call_after_refresh(self.update_panels)

    def tick(self) -> None:
        if self.race.is_over:
            return
        self.race.tick()
        self._show_text()

    def update_panels(self) -> None:
        if not self.is_current:
            return
        for lane in self.query(RaceLane):
            lane.show_figures()
        self.query_one(RaceBar).refresh()
        self.query_one("#race-title", Static).update(self._title())

    def action_pause(self) -> None:
        self.race.playhead.paused = not self.race.playhead.paused
        self._show_now()

    def action_move(self, direction: Literal[1, -1]) -> None:
        self.race.move(direction)
        self._show_now()

    def action_speed(self, direction: Literal["faster", "slower"]) -> None:
        self.race.playhead.change_speed(direction)
        self._show_now()

    def action_rewind(self) -> None:
        self.race.go_to(0.0)
        self._show_now()

    def action_wind(self) -> None:
        self.race.go_to(self.race.duration)
        self._show_now()

    def action_view(self) -> None:
        self._use_view(other_view(self.view))

    def action_scroll(self, where: Literal["up", "down", "end"]) -> None:
        for transcript in self.query(Transcript):
            transcript.turn(where)

    def action_export(self) -> None:
        self.run_worker(self._export, thread=True, exit_on_error=False)

    def _export(self) -> None:
        from mlxspec_app.export.race import file_away  # late: it delays the first frame

        try:
            said = f"wrote {', '.join(map(str, file_away(self.race, Path())))}"
        except OSError as error:
            said = f"the race cannot be written: {error.strerror}"
        self.app.call_from_thread(self.notify, said, timeout=6)

    def action_help(self) -> None:
        self.app.push_screen(HelpScreen(key_list(RACE, self.app.keys)))

    def action_explain(self) -> None:
        explain(self, self.action_help)

    def _use_view(self, view: View) -> None:
        self.view = view
        for lane in self.query(RaceLane):
            lane.set_view(view, ink_named(self.app.settings.ink))

    def _show_text(self) -> None:
        for lane in self.query(RaceLane):
            lane.show_text()

    def _show_now(self) -> None:
        self._show_text()
        self.update_panels()

    def _title(self) -> Content:
        known = self.race.tracks[: 1 if self.race.is_recording else 2]
        targets = {track.target for track in known}
        return Content.assemble(
            (" mlxspec ", "bold reverse"),
            (" race ", "$foreground on $spec-line"),
            "  ",
            (safe_line(" against ".join(sorted(targets))), "$foreground"),
            (" · recorded in turn, played on one clock", "$spec-muted"),
        )


class LiveRaceScreen(RaceScreen):
    """A race over the chat, from its first token on; Escape and q stop it, and go back."""

    BINDINGS: ClassVar[list[BindingType]] = [*RACE_BACK]

    def __init__(self, race: Race, stop: Callable[[], object]) -> None:
        super().__init__(race)
        self._stop = stop

    def finish(self) -> None:
        """Show the result; the keys of the player work from now on."""
        self.race.finish()
        if self.query(RaceBar):  # else it was left, or not drawn yet
            self.refresh_bindings()
            self._show_now()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        return not (self.race.is_recording and action in _OF_PLAYERS)

    def action_back(self) -> None:
        if self.race.is_recording:
            self._stop()
        self.dismiss()
