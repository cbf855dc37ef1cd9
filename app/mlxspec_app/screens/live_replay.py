"""A replay over a conversation that continues meanwhile."""

from collections.abc import Callable, Sequence
from typing import ClassVar

from textual.binding import Binding, BindingType

from mlxspec.trace.events import Event
from mlxspec_app.playback.replay import ReplaySession
from mlxspec_app.screens.help import Key
from mlxspec_app.screens.replay import ReplayScreen
from mlxspec_app.settings.keys.names import key_list
from mlxspec_app.settings.keys.recordings import REPLAY
from mlxspec_app.widgets.playback.transport import Transport

_BACK = Binding(
    "escape,f6,q",
    "dismiss(None)",
    "Back",
    priority=True,
    id="replay.back",
    tooltip="back to the conversation",
)


class LiveReplayScreen(ReplayScreen):
    """Replays the conversation so far, from its end; shows how many rounds are new since."""

    NOTE = "replay, detached"
    BINDINGS: ClassVar[list[BindingType]] = [_BACK]

    def __init__(self, events: Sequence[Event], count_rounds: Callable[[], int]) -> None:
        """Start at the end; `count_rounds` returns the present number of rounds in the chat."""
        super().__init__(ReplaySession(events, autoplay=True))
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

    def active_keys(self) -> list[Key]:
        others = [binding for binding in REPLAY if binding.id != "replay.quit"]
        return [Key(*row) for row in key_list((_BACK, *others), self.choices.keys)]

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
