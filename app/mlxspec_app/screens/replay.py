"""The replay: a conversation screen fed by a recording, with a transport below it."""

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType

from mlxspec_app.keymap import REPLAY, key_list
from mlxspec_app.replay import ReplaySession
from mlxspec_app.screens.conversation import ConversationScreen
from mlxspec_app.screens.help import Key
from mlxspec_app.widgets.transport import Transport
from mlxspec_app.widgets.welcome import Welcome


class ReplayScreen(ConversationScreen):
    """Plays a recording with the views of the chat."""

    NOTE = "replay"
    BINDINGS: ClassVar[list[BindingType]] = list(REPLAY)
    AUTO_FOCUS = ""

    def __init__(self, session: ReplaySession) -> None:
        """Make a screen for a recording."""
        super().__init__(session)
        self.recording = session

    def make_welcome(self) -> Welcome:
        return Welcome(examples=())

    def compose_controls(self) -> ComposeResult:
        yield Transport(self.recording)

    def active_keys(self) -> list[Key]:
        return [Key(*row) for row in key_list(REPLAY)]

    def update_panels(self) -> None:
        super().update_panels()
        self.query_one(Transport).refresh()

    def action_pause(self) -> None:
        self.recording.paused = not self.recording.paused
        self._show_now()

    def action_step(self) -> None:
        self.recording.step()
        self._show_now()

    def action_faster(self) -> None:
        self.recording.change_speed("faster")
        self._show_now()

    def action_slower(self) -> None:
        self.recording.change_speed("slower")
        self._show_now()

    def _show_now(self) -> None:
        self.wake()
        self.tick()
        self.update_panels()
