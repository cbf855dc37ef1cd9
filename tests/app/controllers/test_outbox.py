"""The outbox: messages go out one by one, and come back where what they followed went wrong."""

import pytest

from mlxspec.trace.events import GenerationFailed, GenerationFinished, TurnStarted
from mlxspec_app.controllers.feed import Feed
from mlxspec_app.controllers.outbox import Outbox
from mlxspec_app.conversation.session import LoadFailed, ModelChoice, SessionOpening, SessionReady
from tests.support.fake_page import FakePage
from tests.support.scripted_session import ScriptedSession

LOADED = (SessionOpening("t"), SessionReady())
REPLY = (TurnStarted("user", "a"), GenerationFinished(1.0, "stop", "x"))


class Talk:
    """An outbox whose session tells what a test says."""

    def __init__(self):
        self.session, self.page = ScriptedSession(), FakePage()
        self.feed = Feed(self.session)
        self.outbox = Outbox(self.feed, self.page)

    def hear(self, *events):
        self.session.news += events
        if self.feed.update().has_new_phase:
            self.outbox.follow_phase()


@pytest.fixture
def talk():
    return Talk()


def test_a_message_goes_out_at_once_when_the_session_listens(talk):
    talk.hear(*LOADED)
    talk.outbox.submit("a")
    assert talk.session.orders == [("send", "a")]
    assert talk.page.transcript.seen == ["end"]
    assert talk.feed.state.phase == "busy"


def test_what_is_typed_while_it_loads_waits_and_goes_out_in_turn(talk):
    for text in "abc":
        talk.outbox.submit(text)
    talk.hear(SessionReady())
    assert talk.session.orders == [("send", "a")]
    talk.hear(*REPLY)
    assert talk.session.orders == [("send", "a"), ("send", "b")]
    assert talk.feed.state.queue == ["c"]


@pytest.mark.parametrize(
    "end", [GenerationFinished(1.0, "cancelled"), GenerationFailed(1.0, "no room")]
)
def test_what_followed_a_reply_that_broke_off_comes_back_before_what_is_typed(talk, end):
    talk.hear(*LOADED)
    for text in "abc":
        talk.outbox.submit(text)
    talk.page.prompt.text = "typed"
    talk.hear(TurnStarted("user", "a"), end)
    assert talk.session.orders == [("send", "a")]
    assert talk.page.prompt.text == "b\nc\ntyped"
    assert talk.feed.state.queue == []


def test_other_models_answer_what_waited_though_the_reply_before_broke_off(talk):
    talk.hear(*LOADED, TurnStarted("user", "a"), GenerationFinished(1.0, "cancelled"))
    talk.hear(SessionOpening("other"))
    talk.outbox.submit("b")
    talk.hear(SessionReady())
    assert talk.session.orders == [("send", "b")]


def test_what_was_meant_for_models_that_could_not_be_loaded_comes_back(talk):
    talk.hear(*LOADED)
    talk.hear(SessionOpening("other"))
    talk.outbox.submit("b")
    talk.hear(LoadFailed(ModelChoice("other"), "not there"), SessionOpening("t"), SessionReady())
    talk.outbox.follow_phase()
    assert talk.session.orders == []
    assert talk.page.prompt.text == "b"
