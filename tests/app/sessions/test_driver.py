"""Orders to a conversation: what the model has heard, and what stands on the screen."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlxspec.errors import ContextLengthError
from mlxspec.trace.events import GenerationFailed, GenerationFinished, TurnStarted
from mlxspec_app.conversation.events import ChatCut, ChatOpened, ContextFull, SessionNotice
from mlxspec_app.conversation.fold import fold
from mlxspec_app.conversation.messages import Message, Reply, Span
from mlxspec_app.conversation.orders import (
    Edit,
    ForgetOldest,
    NewChat,
    OpenChat,
    Regenerate,
    Say,
    SetSystem,
)
from mlxspec_app.sessions.driver import ConversationDriver
from mlxspec_app.text.chat_labels import label_of
from tests.support.app_live import FakeConversation


def never():
    return False


class Listener(FakeConversation):
    """Answers "re: ..." to what it is told, but not to "no" while it is full, and keeps turns."""

    def __init__(self):
        super().__init__(lambda done, total: None)
        self.is_full = True

    def reply(self, text, params, *, should_stop=never):
        if self.is_full and text == "no":
            raise ContextLengthError("the prompt has 9 tokens; t takes 8")
        self.turns.append((text, f"re: {text}"))
        return iter([TurnStarted("user", text), GenerationFinished(1.0, "stop", f"re: {text}")])

    def fits_alone(self, text):
        return text != "no"

    def regenerate(self, params, *, should_stop=never):
        return self.reply(self.turns.pop()[0], params)


class Told:
    """A driver, its conversation, and what it told."""

    def __init__(self):
        self.news = []
        self.listener = Listener()
        self.driver = ConversationDriver(self.news.append)
        self.driver.switch_to(self.listener)
        self.do(SetSystem("be kind"))
        self.news.clear()

    def do(self, order):
        self.driver.carry_out(order, None, never)

    def say(self, text):
        self.do(Say(text))

    @property
    def shown(self):
        """What is said on the screen."""
        return [message.text for message in fold(self.news).messages]

    @property
    def heard(self):
        return [text for turn in self.listener.turns for text in turn]


@pytest.fixture
def told():
    return Told()


def test_a_turn_that_does_not_fit_says_so(told):
    told.say("no")
    assert [type(event) for event in told.news] == [TurnStarted, GenerationFailed, ContextFull]
    assert fold(told.news).is_full
    assert not told.news[-1].fits_alone


def test_a_turn_that_was_refused_is_answered_when_it_is_tried_again(told):
    told.say("no")
    told.listener.is_full = False
    told.do(Regenerate())
    assert told.heard == told.shown == ["no", "re: no"]
    assert not fold(told.news).is_full


def test_idle_time_keeps_the_rows_of_the_chat_under_its_first_message(told):
    told.driver.use_idle_time(never)
    assert told.listener.kept == []
    for text in ("one", "two"):
        told.say(text)
        told.driver.use_idle_time(never)
    assert told.listener.kept == [(label_of("one"), False)] * 2


def test_rows_that_cannot_be_kept_cost_a_notice_alone(told):
    told.say("one")
    told.listener.error = RuntimeError("the disk is full")
    told.driver.use_idle_time(never)
    assert [one.message for one in told.news if isinstance(one, SessionNotice)] == [
        "the rows of this chat are not kept: RuntimeError: the disk is full"
    ]


def test_a_turn_is_edited_where_it_stands_although_one_before_was_refused(told):
    for text in ("one", "no", "two", "three"):
        told.say(text)
    told.do(Edit(2, "other"))
    assert told.shown == ["one", "re: one", "no", "", "other", "re: other"]
    assert told.heard == ["one", "re: one", "other", "re: other"]
    assert told.news[-3:-1] == [ChatCut(2), TurnStarted("user", "other")]


def test_an_earlier_chat_goes_on_without_what_the_model_never_heard(told):
    messages = (
        Message("user", [Span("one")]),
        Reply(spans=[Span("re: one")], reason="stop"),
        Message("user", [Span("two")]),
        Reply(error="the disk was full"),
    )
    opened = ChatOpened(messages, "be brief", 4, 7)
    told.do(OpenChat(opened))
    assert told.news == [opened]
    assert told.heard == ["one", "re: one"]
    assert told.listener.system == "be brief"
    told.do(Regenerate())
    assert told.heard == ["one", "re: one", "two", "re: two"]


def test_turns_that_left_the_context_are_told_once(told):
    told.say("one")
    told.listener.num_forgotten = 0
    reply = told.listener.reply

    def forgetting(text, params, *, should_stop=never):
        told.listener.num_forgotten = 1
        return reply(text, params)

    told.listener.reply = forgetting
    told.say("two")
    told.say("three")
    (notice,) = [event.message for event in told.news if isinstance(event, SessionNotice)]
    assert notice.startswith("the oldest 1 turn no longer fits the context")


def test_a_system_prompt_is_told_and_heard(told):
    assert told.listener.system == "be kind"
    told.do(SetSystem("be brief"))
    assert told.listener.system == "be brief"
    assert fold(told.news).system == "be brief"
    told.do(SetSystem(""))
    assert told.listener.system is None


def test_without_a_model_a_turn_is_refused_and_kept_for_the_model_to_come():
    news = []
    driver = ConversationDriver(news.append)
    driver.carry_out(Say("hello"), None, never)
    assert "no model is loaded" in fold(news).reply.error
    listener = Listener()
    driver.switch_to(listener)
    driver.carry_out(Regenerate(), None, never)
    assert listener.turns == [("hello", "re: hello")]


def test_another_model_takes_the_conversation_over(told):
    told.do(ForgetOldest(True))
    told.say("one")
    other = Listener()
    told.driver.switch_to(other)
    assert other.turns == [("one", "re: one")]
    assert other.system == "be kind"
    assert other.forgets_oldest


ORDERS = st.lists(
    st.one_of(
        st.tuples(st.just("say"), st.sampled_from(["yes", "no", "well"])),
        st.tuples(st.just("again"), st.none()),
        st.tuples(st.just("edit"), st.integers(0, 5)),
        st.tuples(st.just("new"), st.none()),
    ),
    max_size=12,
)


@settings(max_examples=40)
@given(ORDERS)
def test_the_model_has_heard_what_was_answered_on_the_screen(orders):
    told = Told()
    for kind, value in orders:
        num_turns = sum(m.role == "user" for m in fold(told.news).messages)
        if kind == "say":
            told.say(value)
        elif kind == "again" and num_turns:
            told.do(Regenerate())
        elif kind == "edit" and value < num_turns:
            told.do(Edit(value, "changed"))
        elif kind == "new":
            told.do(NewChat())
    messages = fold(told.news).messages
    pairs = [(m.text, reply.text) for m, reply in zip(messages[::2], messages[1::2], strict=True)]
    assert told.listener.turns == [pair for pair in pairs if pair[1]]
