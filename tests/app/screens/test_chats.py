"""The chats of the store: what is kept, how another chat goes on, its branches and versions."""

import pytest

from mlxspec.trace.events import GenerationFinished, TurnStarted
from mlxspec_app.conversation.events import ChatCleared, ReplyDiscarded, SessionOpening
from mlxspec_app.conversation.fold import apply
from mlxspec_app.conversation.orders import NewChat, OpenChat, Say, Stop
from mlxspec_app.screens.chat.chats import Chats
from mlxspec_app.store.errors import StoreError
from mlxspec_app.store.records import ChosenChat
from tests.support.store_files import exchange, reply_events


def refuse(recorder):
    raise StoreError("the disk is full")


async def test_what_is_said_is_kept_and_its_title_shown(talk):
    await talk.begin(exchange("Hello", "Hi"))
    assert talk.page.prompt.chat == "Hello"
    path = talk.recorder.writer.path(talk.recorder.chat)
    assert [message.text for message in path] == ["Hello", "Hi"]


async def test_before_anything_is_said_the_chats_before_are_shown(talk):
    await talk.begin(exchange("One", "1"), ChatCleared())
    assert talk.page.overviews[-1].last.title == "One"
    assert talk.page.prompt.chat == ""


async def test_the_last_chat_goes_on_in_the_session(talk):
    await talk.begin(exchange("One", "1"), ChatCleared(), exchange("Two", "2"))
    talk.chats.open_last()
    assert await talk.opened() == ["One", "1"]
    assert talk.feed.state.phase == "ready"
    assert talk.page.transcript.seen == ["end"]


async def test_a_reply_that_is_being_written_is_stopped_and_kept_first(talk):
    await talk.begin(exchange("One", "1"), ChatCleared(), TurnStarted("user", "Two"))
    await talk.hear(list(reply_events("2"))[:-1])
    talk.chats.open_last()
    assert talk.session.orders == [Stop()]
    await talk.hear(GenerationFinished(1.0, "cancelled"))
    assert await talk.opened() == ["One", "1"]
    assert talk.recorder.writer.path(2)[-1].text == "2"


async def test_waiting_messages_come_back_as_another_chat_is_gone_to(talk):
    await talk.begin(exchange("One", "1"), ChatCleared(), TurnStarted("user", "Two"))
    talk.outbox.submit("Three")
    talk.chats.open_last()
    assert talk.page.prompt.text == "Three"
    assert talk.feed.state.queue == []


async def test_what_is_typed_while_a_chat_is_looked_for_waits_for_it(talk):
    await talk.begin(exchange("One", "1"), ChatCleared())
    phases = []
    talk.chats.open_found(lambda recorder: phases.append(talk.feed.state.phase))
    await talk.page.settle()
    assert phases == ["busy"]
    assert talk.feed.state.phase == "ready"  # there is none, so the session is not asked
    assert talk.session.orders == []


async def test_a_chat_sought_in_vain_hides_nothing_that_the_session_said_meanwhile(talk):
    await talk.begin(exchange("One", "1"))
    talk.chats.open_found(lambda recorder: apply(talk.feed.state, SessionOpening()))
    await talk.page.settle()
    assert talk.feed.state.phase == "loading"


async def test_why_a_chat_cannot_be_had_is_said_once_and_all_stays_as_it_is(talk):
    await talk.begin(exchange("One", "1"))
    talk.chats.open_found(refuse)
    await talk.page.settle()
    assert talk.page.told == ["the disk is full"]
    assert talk.feed.state.phase == "ready"
    assert await talk.chats.query_store(refuse, is_quiet=True) is None
    assert talk.page.told == ["the disk is full"]


async def test_the_message_that_was_looked_for_is_shown(talk):
    await talk.begin(exchange("One", "1"), exchange("Two", "2"), ChatCleared())
    wanted = talk.recorder.writer.path(1)[1].id
    talk.chats.open_found(lambda recorder: recorder.writer.find_chat(1, wanted), wanted)
    await talk.opened()
    assert [message.text for message in talk.page.transcript.seen] == ["1"]


async def test_only_the_last_of_two_chats_is_opened(talk):
    await talk.begin(exchange("One", "1"), ChatCleared(), exchange("Two", "2"), ChatCleared())
    for chat in (1, 2):
        talk.chats.open_found(lambda recorder, chat=chat: recorder.writer.find_chat(chat))
    assert await talk.opened() == ["Two", "2"]
    assert len(talk.session.orders) == 1


async def test_a_session_begins_with_the_last_chat_where_that_is_asked_for(talk):
    await talk.begin(exchange("One", "1"), ChatCleared())
    talk.chats.begin(continues=True)
    assert talk.session.orders == []
    await talk.page.settle()
    assert talk.session.orders == [OpenChat(talk.session.opened[0]), "start"]


async def test_without_a_store_a_session_just_begins(talk):
    chats = Chats(talk.feed, talk.page, talk.outbox, None)
    chats.begin(continues=True)
    await talk.page.settle()
    assert talk.session.orders == ["start"]
    assert await chats.query_store(refuse) is None
    assert talk.page.told == []


AGAIN = [ReplyDiscarded(), *reply_events("1b")]


async def test_a_new_chat_ends_the_reply_and_gives_back_what_waits(talk):
    await talk.begin(exchange("One", "1"))
    talk.outbox.submit("Two")
    talk.outbox.submit("Three")
    talk.chats.begin_new()
    assert talk.session.orders == [Say("Two"), Stop(), NewChat()]
    assert talk.page.prompt.text == "Three"


async def test_a_chat_of_the_list_goes_on_unless_it_is_on_the_screen(talk):
    await talk.begin(exchange("One", "1"), ChatCleared(), exchange("Two", "2"))
    talk.chats.follow_choice(ChosenChat(2))
    talk.chats.follow_choice(None)
    await talk.page.settle()
    assert talk.session.orders == []
    talk.chats.follow_choice(ChosenChat(1))
    assert await talk.opened() == ["One", "1"]


async def test_a_message_of_the_chat_on_the_screen_is_gone_to_as_well(talk):
    await talk.begin(exchange("One", "1"), exchange("Two", "2"))
    first = talk.recorder.writer.path(1)[0].id
    talk.chats.follow_choice(ChosenChat(1, first))
    await talk.opened()
    assert talk.page.transcript.seen[-1].text == "One"


async def test_the_list_leads_to_a_new_chat_as_a_deleted_one_is_left_and_others_are_not(talk):
    await talk.begin(exchange("One", "1"))
    talk.chats.leave_deleted(7)
    assert talk.session.orders == []
    talk.chats.leave_deleted(1)
    talk.chats.follow_choice(ChosenChat(None))
    assert talk.session.orders == [Stop(), NewChat()] * 2


async def test_a_chat_has_a_title_once_something_was_said(talk):
    await talk.begin()
    talk.chats.rename("Mine")
    await talk.page.settle()
    assert "this chat has no messages yet" in talk.page.told[0]
    await talk.hear(exchange("One", "1"))
    talk.chats.rename("Mine")
    await talk.page.settle()
    assert talk.page.prompt.chat == "Mine"


async def test_a_fork_holds_the_chat_up_to_the_message_that_is_pointed_at(talk):
    await talk.begin(exchange("One", "1"), exchange("Two", "2"))
    talk.page.transcript.pointed_message = talk.feed.state.messages[1]
    talk.chats.fork()
    assert await talk.opened() == ["One", "1"]
    assert talk.page.prompt.chat == "One · fork"
    assert talk.page.prompt.has_focus


async def test_messages_with_versions_are_marked_and_lead_to_each_other(talk):
    await talk.begin(exchange("One", "1"), AGAIN)
    (number, version), *others = talk.page.transcript.versions.items()
    assert (number, others) == (talk.feed.state.messages[1].number, [])
    assert (version.number, version.count) == (2, 2)
    talk.chats.step_at(number, -1)
    assert await talk.opened() == ["One", "1"]
    talk.chats.step(1)
    assert await talk.opened() == ["One", "1b"]


@pytest.mark.parametrize("step", [1, 2, -2])
async def test_there_is_no_version_beyond_the_last_or_before_the_first(talk, step):
    await talk.begin(exchange("One", "1"), AGAIN, TurnStarted("user", "Two"))
    await talk.hear(list(reply_events("2"))[:-1])  # it would be stopped to open another chat
    talk.chats.step(step)
    await talk.page.settle()
    assert talk.session.orders == []


async def test_only_versions_at_or_above_the_message_at_hand_are_switched(talk):
    await talk.begin(exchange("One", "1"), AGAIN, exchange("Two", "2"))
    talk.page.transcript.pointed_message = talk.feed.state.messages[0]
    talk.chats.step(-1)
    talk.chats.step_at(-7, -1)  # a message that is gone
    await talk.page.settle()
    assert talk.session.orders == []
    talk.page.transcript.pointed_message = None
    talk.chats.step(-1)
    assert await talk.opened() == ["One", "1"]
