"""The watch screen: a reply of a server while it is written, and a list of the newest ones."""

from typing import ClassVar, Literal

from textual.app import ComposeResult
from textual.binding import BindingType

from mlxspec_app.conversation.views import XRAY
from mlxspec_app.screens.conversation.screen import ConversationScreen
from mlxspec_app.sessions.watching import WatchSession
from mlxspec_app.settings.keys.tables import WATCH
from mlxspec_app.widgets.lists.watched_replies import WatchedReplies


class WatchScreen(ConversationScreen):
    """Shows the replies of a server with the views of the chat."""

    NOTE = "watch"
    EXAMPLES = ()
    FIRST_VIEW = XRAY  # users open this screen to study the rounds
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
