"""Plays the present conversation, or the runs of a race, over the chat."""

import time

from mlxspec.errors import TraceError
from mlxspec_app.conversation.events import AnyEvent, RaceFinished
from mlxspec_app.conversation.messages import Reply
from mlxspec_app.playback.demo import read_bundled
from mlxspec_app.playback.events_of import events_of
from mlxspec_app.playback.race import Race, Track
from mlxspec_app.screens.conversation.screen import ConversationScreen
from mlxspec_app.screens.replay import DemoScreen, LiveReplayScreen


class Playing:
    """Opens the screens that play something; the chat goes on below them."""

    def __init__(self, screen: ConversationScreen) -> None:
        self._screen = screen

    def handle(self, event: AnyEvent) -> None:
        """Play a race as soon as its runs are recorded."""
        if isinstance(event, RaceFinished) and event.plain:
            from mlxspec_app.screens.race import LiveRaceScreen  # late: it delays the first frame

            runs = [Track("A", event.plain), Track("B", event.drafted)]
            self._screen.app.push_screen(LiveRaceScreen(Race(runs, time.monotonic)))

    def replay(self) -> None:
        """Replay the conversation, or a recording of the app if there is no reply yet."""
        screen = self._screen

        def num_rounds() -> int:
            return sum(len(m.rounds) for m in screen.state.messages if isinstance(m, Reply))

        if screen.state.reply is not None:
            screen.app.push_screen(LiveReplayScreen(events_of(screen.state), num_rounds))
            return
        try:
            screen.app.push_screen(DemoScreen(read_bundled("chat")))
        except TraceError as error:
            screen.notify(str(error), severity="warning", timeout=4)
