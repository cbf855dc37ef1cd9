"""The replay screen: a recorded conversation, or the present one, with a transport below it."""

from collections.abc import Callable, Sequence
from typing import ClassVar, Literal

from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Static

from mlxspec.trace.events import Event
from mlxspec_app.conversation.views import XRAY
from mlxspec_app.playback.replay import ReplaySession
from mlxspec_app.playback.timeline import Phase, Unit
from mlxspec_app.screens.conversation.screen import ConversationScreen
from mlxspec_app.screens.dialogs import GoToScreen
from mlxspec_app.settings.keys.tables import REPLAY, REPLAY_BACK
from mlxspec_app.widgets.draft.draft_lane import DraftLane
from mlxspec_app.widgets.draft.tree_panel import TreePanel
from mlxspec_app.widgets.scrubber import Scrubber

_PHASES: tuple[Phase, ...] = ("draft", "verify", "commit")
_GAP = "   "
_MUTED = "$spec-muted"


class Transport(Vertical):
    """Three rows: two of the scrubber, and the figures."""

    def __init__(self, session: ReplaySession) -> None:
        super().__init__()
        self._session = session

    def compose(self) -> ComposeResult:
        yield Scrubber(self._session.timeline)
        yield Static(id="position")

    def show(self, note: str = "") -> None:
        self.query_one(Scrubber).show(self._session.position)
        row = position_row(self._session, max(1, self.size.width - 2), note)
        self.query_one("#position", Static).update(row)


def position_row(session: ReplaySession, width: int, note: str = "") -> Content:
    """Return the figures of the position in at most `width` cells; minor ones are left out."""
    timeline, rounds = session.timeline, session.timeline.rounds
    done = timeline.rounds_done(session.position)
    sign = "■ end" if not session.busy else "‖ paused" if session.playhead.paused else "▶"
    state = [
        Content.styled(f"{sign} {session.playhead.speed:g}\u00d7", "$foreground bold"),
        Content.styled(f"round {done + (session.view is not None)}/{len(rounds)}", "$foreground"),
    ]
    number = rounds[min(done, len(rounds) - 1)].reply if rounds else timeline.num_replies
    reply = f"reply {number}/{timeline.num_replies}"
    time = f"{timeline.time_of(session.position):.2f} of {timeline.duration:.2f} s"
    extras = [
        Content.styled(note, "$spec-corrected"),
        _phases(session),
        Content.styled(time, _MUTED),
        Content.styled(reply if timeline.num_replies > 1 else "", _MUTED),
    ]
    for extra in extras:
        longer = [*state, extra]
        if extra and sum(part.cell_length + len(_GAP) for part in longer) <= width + len(_GAP):
            state = longer
    return Content(_GAP).join(state)


def _phases(session: ReplaySession) -> Content:
    """Return the phases of a round; the present one is marked if it lasts long enough to see."""
    moments, position = session.timeline.moments, session.position
    phase = moments[position - 1].phase if position and session.lingers else None
    if phase == "prefill":
        return Content.styled("▸prefill", "$foreground bold")
    return Content(" ").join(
        Content.styled(f"▸{name}", "$foreground bold")
        if name == phase
        else Content.styled(f" {name}", _MUTED)
        for name in _PHASES
    )


class ReplayScreen(ConversationScreen):
    """Plays a recording with the views of the chat; at slow speeds also the phases of a round."""

    NOTE = "replay"
    EXAMPLES = ()
    FIRST_VIEW = XRAY  # users open this screen to study the rounds
    BINDINGS: ClassVar[list[BindingType]] = list(REPLAY)
    KEYS = REPLAY
    AUTO_FOCUS = ""

    def __init__(self, session: ReplaySession) -> None:
        super().__init__(session)
        self.recording = session

    def begin(self) -> None:
        super().begin()
        if self.app.animation_level == "none":
            self.recording.playhead.paused = True  # a key starts it

    def compose_controls(self) -> ComposeResult:
        yield Transport(self.recording)

    def update_panels(self, charts: bool = True) -> None:
        super().update_panels(charts)
        if not charts:
            return
        view = self.recording.view if self.recording.lingers else None
        self.query_one(DraftLane).show_phase(view)
        self.query_one(TreePanel).show_phase(view)
        self.query_one(Transport).show()

    def action_pause(self) -> None:
        self.recording.playhead.paused = not self.recording.playhead.paused
        self.show_now()

    def action_move(self, unit: Unit, direction: Literal[1, -1]) -> None:
        self.recording.move(unit, direction)
        self.show_now()

    def action_speed(self, direction: Literal["faster", "slower"]) -> None:
        self.recording.playhead.change_speed(direction)
        self.show_now()

    def action_rewind(self) -> None:
        self._go_to(0)

    def action_wind(self) -> None:
        self._go_to(len(self.recording.timeline))

    def action_ask_round(self) -> None:
        rounds = self.recording.timeline.rounds
        if rounds:
            self.app.push_screen(GoToScreen(len(rounds)), self._go_to_round)

    @on(Scrubber.Picked)
    def _pick(self, event: Scrubber.Picked) -> None:
        self._go_to(self.recording.timeline.at_share(event.share))

    def _go_to_round(self, number: int | None) -> None:
        if number is not None:
            self.recording.playhead.paused = True
            self._go_to(self.recording.timeline.end_of_round(number))

    def _go_to(self, position: int) -> None:
        self.recording.go_to(position)
        self.show_now()


class LiveReplayScreen(ReplayScreen):
    """Replays the conversation so far, from its end; shows how many rounds are new since."""

    NOTE = "replay, detached"
    BINDINGS: ClassVar[list[BindingType]] = [*REPLAY_BACK]
    KEYS = (*REPLAY_BACK, *(binding for binding in REPLAY if binding.id != "replay.quit"))

    def __init__(self, events: Sequence[Event], count_rounds: Callable[[], int]) -> None:
        """Start at the end; `count_rounds` returns the present number of rounds in the chat."""
        super().__init__(ReplaySession(events))
        self._count_rounds = count_rounds

    def begin(self) -> None:
        super().begin()
        self.wind()

    def wind(self) -> None:
        """Pause at the end, where the conversation was when the replay opened."""
        self.recording.playhead.paused = True
        self.action_wind()

    def interrupt(self) -> None:
        self.dismiss(None)

    def update_panels(self, charts: bool = True) -> None:
        super().update_panels(charts)
        missed = self._count_rounds() - len(self.recording.timeline.rounds)
        self.query_one(Transport).show(f"live +{missed} rounds" if missed > 0 else "")


class DemoScreen(LiveReplayScreen):
    """Plays a recording from its start, over a chat without replies."""

    NOTE = "a recording"

    def __init__(self, events: Sequence[Event]) -> None:
        super().__init__(events, lambda: 0)

    def wind(self) -> None:
        """Stay at the start, and play."""
