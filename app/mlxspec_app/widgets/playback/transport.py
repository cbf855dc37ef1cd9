"""The transport of a replay: its speed, its position, and the phase on the screen."""

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Static

from mlxspec_app.playback.replay import ReplaySession
from mlxspec_app.playback.timeline import Phase
from mlxspec_app.widgets.playback.scrubber import Scrubber

_PHASES: tuple[Phase, ...] = ("draft", "verify", "commit")
_GAP = "   "
_MUTED = "$spec-muted"


class Transport(Vertical):
    """Three rows: two of the scrubber, and the figures."""

    DEFAULT_CSS = """
    Transport {
        height: 3;
        & > Static { height: 1; padding: 0 1; text-wrap: nowrap; text-overflow: ellipsis; }
    }
    """

    def __init__(self, session: ReplaySession) -> None:
        super().__init__()
        self._session = session

    def compose(self) -> ComposeResult:
        yield Scrubber(self._session.timeline)
        yield Static(id="position")

    def show(self, note: str = "") -> None:
        """Show the position of the session, and a note."""
        self.query_one(Scrubber).show(self._session.position)
        row = position_row(self._session, max(1, self.size.width - 2), note)
        self.query_one("#position", Static).update(row)


def position_row(session: ReplaySession, width: int, note: str = "") -> Content:
    """Return the figures of the position in at most `width` cells; minor ones are left out."""
    timeline = session.timeline
    current = timeline.rounds_done(session.position) + (session.view is not None)
    state = [
        Content.styled(playing_sign(session), "$foreground bold"),
        Content.styled(f"round {current}/{len(timeline.rounds)}", "$foreground"),
    ]
    reply = f"reply {_reply_at(session)}/{timeline.num_replies}"
    time = f"{session.timeline.time_of(session.position):.2f} of {timeline.duration:.2f} s"
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


def playing_sign(session: ReplaySession) -> str:
    """Return a sign for playing, paused or ended, and the speed relative to the recording."""
    sign = "■ end" if not session.busy else "‖ paused" if session.playhead.paused else "▶"
    return f"{sign} {session.playhead.speed:g}\u00d7"


def _reply_at(session: ReplaySession) -> int:
    done = session.timeline.rounds_done(session.position)
    rounds = session.timeline.rounds
    return rounds[min(done, len(rounds) - 1)].reply if rounds else session.timeline.num_replies


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
