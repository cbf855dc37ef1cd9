"""A chat that is kept, without a screen: a feed, a store that answers at once."""

from mlxspec_app.conversation.events import SessionReady
from mlxspec_app.screens.chat.chats import Chats
from mlxspec_app.screens.chat.next_reply import NextReply
from mlxspec_app.screens.chat.outbox import Outbox
from mlxspec_app.screens.conversation.feed import Feed
from mlxspec_app.user.paths import find_paths
from mlxspec_app.user_data import UserData
from tests.support.fake_page import DirectStore, FakePage
from tests.support.scripted_session import ScriptedSession
from tests.support.store_files import open_recorder


class KeptTalk:
    """The classes of the chat screen, on a screen that notes what it is told."""

    def __init__(self, folder):
        self.page, self.session = FakePage(), ScriptedSession()
        self.recorder = open_recorder(folder / "chats.sqlite3")
        self.user_data = UserData(find_paths(folder))
        self.user_data.store = DirectStore(self.recorder)
        self.feed = Feed(self.session, lambda order: None)
        self.outbox = Outbox(self.feed, self.page)
        self.chats = Chats(self.feed, self.page, self.outbox, self.user_data)
        self.next_reply = NextReply(self.feed, self.page)
        self.feed.listen(self.chats.handle, self.outbox.handle)

    async def hear(self, *groups):
        """Let the session tell events, and groups of them, and all that follows happen."""
        for group in groups:
            self.session.news += [group] if hasattr(group, "__dataclass_fields__") else group
        if self.feed.update().has_new_phase:
            self.chats.follow_phase()
            self.outbox.follow_phase()
        await self.page.settle()

    async def begin(self, *groups):
        """Let the session be ready, and tell what was said."""
        await self.hear(SessionReady(), *groups)

    async def opened(self):
        """Let the session go on with the chat that it was given last; return the texts of that."""
        await self.page.settle()
        await self.hear(self.session.opened[-1])
        return self.texts

    @property
    def texts(self):
        return [message.text for message in self.feed.state.messages]

    def close(self):
        self.recorder.close()
