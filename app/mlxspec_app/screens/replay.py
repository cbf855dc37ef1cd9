"""The replay screen: a recorded conversation, with a transport below it."""

from typing import ClassVar, Literal

from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType

from mlxspec_app.conversation.views import XRAY, View
from mlxspec_app.playback.replay import ReplaySession
from mlxspec_app.playback.timeline import Unit
from mlxspec_app.screens.conversation.screen import ConversationScreen
from mlxspec_app.screens.go_to import GoToScreen
from mlxspec_app.screens.help import Key
from mlxspec_app.settings.file import Settings
from mlxspec_app.settings.keys.names import key_list
from mlxspec_app.settings.keys.recordings import REPLAY
from mlxspec_app.widgets.draft.phase_views import PhaseLane, PhaseTree
from mlxspec_app.widgets.playback.scrubber import Scrubber
from mlxspec_app.widgets.playback.transport import Transport


class ReplayScreen(ConversationScreen):
    """Plays a recording with the views of the chat; at slow speeds also the phases of a round."""

    NOTE = "replay"
    EXAMPLES = ()
    TREE = PhaseTree
    LANE = PhaseLane
    BINDINGS: ClassVar[list[BindingType]] = list(REPLAY)
    AUTO_FOCUS = ""

    def __init__(self, session: ReplaySession) -> None:
        super().__init__(session)
        self.recording = session

    def first_view(self, settings: Settings) -> View:
        """Return the X-ray: the user of a replay studies the rounds."""
        return XRAY

    def begin(self) -> None:
        super().begin()
        if self.app.animation_level == "none":
            self.recording.playhead.paused = True  # a key starts it

    def compose_controls(self) -> ComposeResult:
        yield Transport(self.recording)

    def active_keys(self) -> list[Key]:
        return [Key(*row) for row in key_list(REPLAY, self.choices.keys)]

    def tick(self) -> None:
        state = self.recording.rewound()
        if state is not None:
            self.feed.state = state
            self.update_views()
            self.refresh_bindings()
        super().tick()

    def update_panels(self, charts: bool = True) -> None:
        super().update_panels(charts)
        if not charts:
            return
        view = self.recording.view if self.recording.lingers else None
        self.query_one(PhaseLane).show_phase(view)
        self.query_one(PhaseTree).show_phase(view)
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

    def _keep_view(self, name: str, value: str) -> None:
        """Store nothing: the view of a replay is not that of the chats."""

    def _go_to_round(self, number: int | None) -> None:
        if number is not None:
            self.recording.playhead.paused = True
            self._go_to(self.recording.timeline.end_of_round(number))

    def _go_to(self, position: int) -> None:
        self.recording.go_to(position)
        self.show_now()
