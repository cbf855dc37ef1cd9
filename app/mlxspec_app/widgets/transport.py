"""The transport of a replay: where it is, how fast it runs, and a strip of the whole recording."""

from textual.content import Content
from textual.widget import Widget

from mlxspec_app.bars import spark
from mlxspec_app.replay import ReplaySession


class Transport(Widget):
    """Two rows: accepted length over the whole recording, played part lit; and the figures."""

    DEFAULT_CSS = """
    Transport { height: 3; padding: 0 1; border-top: solid $spec-line; text-wrap: nowrap; }
    """
    ALLOW_SELECT = False

    def __init__(self, session: ReplaySession) -> None:
        """Make the transport of a session."""
        super().__init__()
        self._session = session
        self._lengths = session.accepted_lengths

    def render(self) -> Content:
        session, width = self._session, max(1, self.size.width)
        played, total = session.rounds_played, len(self._lengths)
        line = spark(self._lengths, width, max([*self._lengths, 1]))
        cut = round(len(line) * played / total) if total else 0
        strip = Content.assemble((line[:cut], "$spec-accepted"), (line[cut:], "$spec-muted"))
        return Content("\n").join([strip, self._figures(played, total)])

    def _figures(self, played: int, total: int) -> Content:
        session = self._session
        sign = "■ end" if not session.busy else "‖ paused" if session.paused else "▶"
        speed = f"{session.speed:g}\u00d7"
        return Content.assemble(
            (f"{sign} {speed}", "$foreground bold"),
            (" +/-", "$spec-muted"),
            (f"   round {played}/{total}", "$foreground"),
            (f"   {session.position:.1f} of {session.duration:.1f} s", "$spec-muted"),
        )
