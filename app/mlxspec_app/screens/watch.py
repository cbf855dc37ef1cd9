"""The watch screen: a reply of a server while it is written, and a list of the newest ones."""

from typing import ClassVar, Literal

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.content import Content
from textual.widgets import Static

from mlxspec_app.conversation.figures import Part, fitting
from mlxspec_app.screens.conversation.screen import ConversationScreen
from mlxspec_app.sessions.watching import Watched, WatchSession
from mlxspec_app.settings.keys.tables import WATCH
from mlxspec_app.text.safe_text import safe_line

_MOST_ROWS = 5
_NAME_CELLS = 6
_MODEL_CELLS = 32
_GAP = 3


class WatchedReplies(Static):
    """One row for the server, and one for each of its newest replies."""

    def __init__(self, session: WatchSession, url: str) -> None:
        super().__init__()
        self._session, self._url = session, url

    def show(self) -> None:
        session, width = self._session, max(1, self.size.width - 2)
        rows = [_server_row(session, self._url)]
        rows += [_row(reply, reply is session.shown, width) for reply in _listed(session)]
        self.update(Content("\n").join(rows))


def _listed(session: WatchSession) -> list[Watched]:
    """Return the newest replies, oldest first; the one that is shown is always among them."""
    replies = list(session.replies.values())
    newest = replies[-_MOST_ROWS:]
    shown = session.shown
    if shown is not None and shown not in newest:
        newest = [shown, *newest[1:]]
    return newest


def _server_row(session: WatchSession, url: str) -> Content:
    sign = ("○ ", "$spec-corrected bold") if session.trouble else ("● ", "$spec-accepted bold")
    words = session.trouble or f"{len(session.running)} running"
    lost = f" · {session.num_lost} events lost" if session.num_lost else ""
    return Content.assemble(
        sign, (safe_line(url), "$foreground"), (f" · {safe_line(words)}{lost}", "$spec-muted")
    )


def _row(reply: Watched, is_shown: bool, width: int) -> Content:
    sign = "✗" if reply.is_failed else "✓" if reply.is_over else "●"
    stats = reply.stats
    drafter = f" ◂ {safe_line(reply.drafter)}" if reply.drafter else ""
    parts = [
        Part(f"{'▸' if is_shown else ' '} {sign} {safe_line(reply.name)[:_NAME_CELLS]}"),
        Part(safe_line(reply.model)[:_MODEL_CELLS] + drafter, 3),
        Part(f"{stats.generated_tokens:>4} tokens"),
        Part(f"{stats.generation_tps:>5.1f} tokens/s", 1),
    ]
    if stats.rounds:
        parts.append(Part(f"acceptance rate {stats.acceptance_rate:.0%}".replace("%", " %"), 2))
    shown = fitting(parts, width, _GAP)
    style = "$foreground bold" if is_shown else "$spec-muted"
    return Content.styled((" " * _GAP).join(part.text for part in shown), style)


class WatchScreen(ConversationScreen):
    """Shows the replies of a server with the views of the chat."""

    NOTE = "watch"
    EXAMPLES = ()
    INVITATION = "Replies of the server appear here while they are written."
    BINDINGS: ClassVar[list[BindingType]] = list(WATCH)
    KEYS = WATCH
    AUTO_FOCUS = ""

    def __init__(self, session: WatchSession, url: str) -> None:
        super().__init__(session)
        self.watched, self._url = session, url

    def compose_controls(self) -> ComposeResult:
        yield WatchedReplies(self.watched, self._url)

    def update_panels(self, charts: bool = True) -> None:
        super().update_panels(charts)
        if self.is_current:
            self.query_one(WatchedReplies).show()

    def action_move(self, direction: Literal[1, -1]) -> None:
        self.watched.move(direction)
        self.show_now()
