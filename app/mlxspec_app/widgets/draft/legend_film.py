"""A short recorded reply above the legend, replayed to show the colours in use."""

import math
from pathlib import Path

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Static

from mlxspec_app.app import choices_of
from mlxspec_app.conversation.fold import apply
from mlxspec_app.conversation.state import ChatState
from mlxspec_app.conversation.views import XRAY
from mlxspec_app.frames import frames_per_s
from mlxspec_app.playback.replay import ReplaySession
from mlxspec_app.widgets.chat.token_message import TokenMessage
from mlxspec_app.widgets.draft.draft_lane import DraftLane
from mlxspec_app.widgets.draft.legend import legend

RECORDING = Path(__file__).parents[2] / "recordings" / "first_run.jsonl"
_SPEED = 0.5  # of the recorded speed: slow enough to see a round


class LegendFilm(Vertical):
    """Plays the recording once; without animations it shows the end at once."""

    DEFAULT_CSS = """
    LegendFilm {
        height: auto;
        & > TokenMessage { min-height: 2; margin: 0 0 1 0; }
        & > DraftLane { height: 2; border-top: none; margin: 0 0 1 0; }
        & > Static { height: auto; }
    }
    """

    def __init__(self, *, id: str | None = None) -> None:
        """Make a film that has not started."""
        super().__init__(id=id)
        self._state = ChatState()
        self._session: ReplaySession | None = None

    def compose(self) -> ComposeResult:
        yield TokenMessage(view=XRAY)
        yield DraftLane()
        yield Static(Content("\n").join(legend()))

    def on_mount(self) -> None:
        self.set_interval(1 / frames_per_s(choices_of(self.app).settings), self.tick)

    def begin(self) -> None:
        """Play from the start; later calls do nothing."""
        if self._session is not None:
            return
        speed = math.inf if self.app.animation_level == "none" else _SPEED
        self._session = ReplaySession.from_file(RECORDING, speed)
        self._session.start()
        self.tick()

    def tick(self) -> None:
        """Show the events since the last frame."""
        news = self._session.drain() if self._session is not None else []
        for event in news:
            apply(self._state, event)
        reply = self._state.reply
        if not news or reply is None:
            return
        message = self.query_one(TokenMessage)
        message.extend(reply.spans[message.num_spans :])
        message.set_streaming(not reply.is_finished)
        self.query_one(DraftLane).show(self._state.last_round)
