"""Whatever is said, edited, written again or opened: the store holds what the screen shows."""

import tempfile
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from mlxspec.errors import ContextLengthError
from mlxspec.trace.events import GenerationFailed
from mlxspec_app.conversation.events import ChatOpened
from mlxspec_app.conversation.fold import apply
from mlxspec_app.conversation.messages import without_system
from mlxspec_app.conversation.orders import Edit, NewChat, OpenChat, Regenerate, Say
from mlxspec_app.conversation.state import ChatState
from mlxspec_app.sessions.driver import ConversationDriver
from mlxspec_app.store.restore import restore
from tests.support.store_files import exchange, open_recorder, texts_of

ENDINGS = st.sampled_from(["stop", "cancelled", "broken", "refused"])
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["say", "say", "retry", "edit", "version", "open", "fork", "new"]),
        st.integers(0, 5),
        ENDINGS,
    ),
    max_size=12,
)


class Model:
    """Answers with numbered replies that end as the test says."""

    system = None
    forgets_oldest = False
    num_forgotten = 0

    def __init__(self):
        self.turns, self.reply_tokens = [], []
        self.num_replies = 0

    def reply(self, text, ending, *, should_stop):
        if ending == "refused":
            raise ContextLengthError("too long")
        self.turns.append((text, ""))
        return self._events(text, ending)

    def regenerate(self, ending, *, should_stop):
        return self.reply(
            self.turns.pop()[0], "stop" if ending == "refused" else ending, should_stop=should_stop
        )

    def _events(self, text, ending):
        self.num_replies += 1
        pieces = [f"{self.num_replies}", "!"]
        *events, last = exchange(text, *pieces, reason="stop" if ending == "broken" else ending)
        self.turns[-1] = (text, "".join(pieces))
        yield from events
        yield GenerationFailed(1.0, "broken") if ending == "broken" else last

    def fits_alone(self, text):
        return True

    def reset(self):
        self.turns = []

    def restore(self, turns, system=None, tokens=()):
        self.turns, self.system = list(turns), system

    def cut(self, num_turns):
        del self.turns[num_turns:]


class Chatting:
    """A session, its screen and its store, in one thread."""

    def __init__(self, folder):
        self.folder = folder
        self.state = ChatState()
        self.recorder = open_recorder(folder / "chats.sqlite3")
        self.model = Model()
        self.driver = ConversationDriver(self.publish)
        self.driver.switch_to(self.model)

    def publish(self, event):
        apply(self.state, event)
        self.recorder.apply(event)

    def do(self, order, ending=None):
        self.driver.carry_out(order, ending, None)

    def take(self, step, number, ending):
        shown = without_system(self.state.messages)
        turns = [message for message in shown if message.role == "user"]
        if step == "say":
            self.do(Say(f"turn {number}"), ending)
        elif step == "retry" and turns:
            self.do(Regenerate(), ending)
        elif step == "edit" and turns:
            self.do(Edit(number % len(turns), f"edit {number}"), ending)
        elif step == "new":
            self.do(NewChat())
        elif step == "open":
            chats = self.recorder.writer.recent()
            if chats:
                self.open(self.recorder.writer.find_chat(chats[number % len(chats)].chat))
        elif step == "version" and shown:
            self.open(self.recorder.find_version(number % len(shown), number % 3 - 1))
        elif step == "fork" and shown:
            self.open(self.recorder.fork_at(number % len(shown)))

    def open(self, found):
        if found is not None:
            messages = restore(found.path, self.folder)
            leaf = found.path[-1].id if found.path else None
            self.do(OpenChat(ChatOpened(messages, None, found.chat.id, leaf)))


@given(STEPS)
def test_the_store_holds_the_conversation_on_the_screen(steps):
    with tempfile.TemporaryDirectory() as folder:
        chatting = Chatting(Path(folder))
        for step in steps:
            chatting.take(*step)
            shown = without_system(chatting.state.messages)
            kept = chatting.recorder.path()
            assert texts_of(kept) == texts_of(shown)
            assert [message.role for message in kept] == [message.role for message in shown]
            answered = [(text, reply) for text, reply in turns_of_screen(shown) if reply]
            assert chatting.model.turns == answered
        chatting.recorder.close()


def turns_of_screen(shown):
    """What the user said and what the model answered, "" for nothing."""
    turns = []
    for message in shown:
        if message.role == "user":
            turns.append([message.text, ""])
        elif turns:
            turns[-1][1] = message.text
    return turns
