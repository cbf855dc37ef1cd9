"""The outbox: messages go out one by one or come back, and turns are edited in the prompt."""

import pytest

from mlxspec.trace.events import GenerationFailed, GenerationFinished, TurnStarted
from mlxspec_app.conversation.events import (
    ChatCleared,
    LoadFailed,
    ModelChoice,
    SessionOpening,
    SessionReady,
)
from mlxspec_app.conversation.orders import Edit, Say, Stop
from mlxspec_app.screens.chat.outbox import Outbox
from mlxspec_app.screens.conversation.feed import Feed
from tests.support.fake_page import FakePage
from tests.support.scripted_session import ScriptedSession
from tests.support.store_files import exchange

LOADED = (SessionOpening("t"), SessionReady())
REPLY = (TurnStarted("user", "a"), GenerationFinished(1.0, "stop", "x"))


class Talk:
    """An outbox whose session tells what a test says."""

    def __init__(self):
        self.session, self.page = ScriptedSession(), FakePage()
        self.feed = Feed(self.session, lambda order: None)
        self.outbox = Outbox(self.feed, self.page)

    def hear(self, *events):
        self.session.news += events
        if self.feed.update().has_new_phase:
            self.outbox.follow_phase()


@pytest.fixture
def box():
    return Talk()


def test_a_message_goes_out_at_once_when_the_session_listens(box):
    box.hear(*LOADED)
    box.outbox.submit("a")
    assert box.session.orders == [Say("a")]
    assert box.feed.state.phase == "busy"


def test_what_is_typed_while_it_loads_waits_and_goes_out_in_turn(box):
    for text in "abc":
        box.outbox.submit(text)
    box.hear(SessionReady())
    assert box.session.orders == [Say("a")]
    box.hear(*REPLY)
    assert box.session.orders == [Say("a"), Say("b")]
    assert box.feed.state.queue == ["c"]


@pytest.mark.parametrize(
    "end", [GenerationFinished(1.0, "cancelled"), GenerationFailed(1.0, "no room")]
)
def test_what_followed_a_reply_that_broke_off_comes_back_before_what_is_typed(box, end):
    box.hear(*LOADED)
    for text in "abc":
        box.outbox.submit(text)
    box.page.prompt.text = "typed"
    box.hear(TurnStarted("user", "a"), end)
    assert box.session.orders == [Say("a")]
    assert box.page.prompt.text == "b\nc\ntyped"
    assert box.feed.state.queue == []


def test_other_models_answer_what_waited_though_the_reply_before_broke_off(box):
    box.hear(*LOADED, TurnStarted("user", "a"), GenerationFinished(1.0, "cancelled"))
    box.hear(SessionOpening("other"))
    box.outbox.submit("b")
    box.hear(SessionReady())
    assert box.session.orders == [Say("b")]


def test_what_was_meant_for_models_that_could_not_be_loaded_comes_back(box):
    box.hear(*LOADED)
    box.hear(SessionOpening("other"))
    box.outbox.submit("b")
    box.hear(LoadFailed(ModelChoice("other"), "not there"), SessionOpening("t"), SessionReady())
    box.outbox.follow_phase()
    assert box.session.orders == []
    assert box.page.prompt.text == "b"


async def test_the_last_turn_is_said_differently_and_the_draft_comes_back(talk):
    await talk.begin(exchange("One", "1"), exchange("Two", "2"))
    prompt = talk.page.prompt
    prompt.text = "a draft"
    talk.outbox.begin_edit()
    assert (prompt.text, prompt.has_focus, talk.outbox.is_editing) == ("Two", True, True)
    assert prompt.purpose == "editing turn 2 · Enter sends, Esc cancels"
    assert talk.outbox.send_edited("Deux")
    assert (prompt.text, prompt.purpose, talk.outbox.is_editing) == ("a draft", "", False)
    assert talk.session.orders == [Edit(1, "Deux")]
    assert talk.feed.state.phase == "busy"


async def test_the_turn_above_what_is_pointed_at_is_edited_and_the_draft_outlives_both(talk):
    await talk.begin(exchange("One", "1"), exchange("Two", "2"))
    talk.page.prompt.text = "a draft"
    talk.outbox.begin_edit()
    talk.page.transcript.pointed_message = talk.feed.state.messages[1]
    talk.outbox.begin_edit()
    assert talk.page.prompt.text == "One"
    assert talk.outbox.end_edit()
    assert talk.page.prompt.text == "a draft"
    assert not talk.outbox.end_edit()


async def test_what_is_no_edit_is_not_sent_by_the_editor(talk):
    await talk.begin(exchange("One", "1"))
    assert not talk.outbox.send_edited("Two")
    assert talk.session.orders == []


async def test_a_reply_that_is_being_written_is_stopped_and_what_waits_comes_back(talk):
    await talk.begin(TurnStarted("user", "One"))
    talk.outbox.begin_edit()
    talk.outbox.submit("Two")
    assert talk.outbox.send_edited("Un")
    assert talk.session.orders == [Stop(), Edit(0, "Un")]
    assert talk.page.prompt.text == "Two"


async def test_a_turn_is_edited_while_models_are_loaded_and_they_still_are(talk):
    await talk.begin(exchange("One", "1"), SessionOpening("other"))
    talk.outbox.begin_edit()
    assert talk.outbox.send_edited("Un")
    assert talk.session.orders == [Edit(0, "Un")]
    assert talk.feed.state.phase == "loading"


async def test_another_chat_ends_the_edit(talk):
    await talk.begin(exchange("One", "1"))
    talk.page.prompt.text = "a draft"
    talk.outbox.begin_edit()
    await talk.hear(ChatCleared())
    assert not talk.outbox.is_editing
    assert talk.page.prompt.text == "a draft"


async def test_where_nothing_was_said_there_is_nothing_to_edit(talk):
    await talk.begin()
    talk.outbox.begin_edit()
    assert not talk.outbox.is_editing
