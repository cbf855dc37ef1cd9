"""The storage of chats: what it stores, and the steps by which a stored chat goes on."""

import pytest

from mlxspec.trace.events import GenerationFinished, TurnStarted
from mlxspec_app.controllers.storage import ChatStorage
from mlxspec_app.conversation.session import ChatCleared
from mlxspec_app.store.errors import StoreError
from mlxspec_app.store.queries import find_chat
from tests.support.store_files import exchange, reply_events


def refuse(recorder):
    raise StoreError("the disk is full")


async def test_what_is_said_is_kept_and_its_title_shown(talk):
    await talk.begin(exchange("Hello", "Hi"))
    assert talk.page.prompt.chat == "Hello"
    path = talk.recorder.writer.reader.path(talk.recorder.chat)
    assert [message.text for message in path] == ["Hello", "Hi"]


async def test_before_anything_is_said_the_chats_before_are_shown(talk):
    await talk.begin(exchange("One", "1"), ChatCleared())
    assert talk.page.overviews[-1].last.title == "One"
    assert talk.page.prompt.chat == ""


async def test_the_last_chat_goes_on_in_the_session(talk):
    await talk.begin(exchange("One", "1"), ChatCleared(), exchange("Two", "2"))
    talk.storage.open_last()
    assert await talk.opened() == ["One", "1"]
    assert talk.feed.state.phase == "ready"
    assert talk.page.transcript.seen == ["end"]


async def test_a_reply_that_is_being_written_is_stopped_and_kept_first(talk):
    await talk.begin(exchange("One", "1"), ChatCleared(), TurnStarted("user", "Two"))
    await talk.hear(list(reply_events("2"))[:-1])
    talk.storage.open_last()
    assert talk.session.orders == ["stop"]
    await talk.hear(GenerationFinished(1.0, "cancelled"))
    assert await talk.opened() == ["One", "1"]
    assert talk.recorder.writer.reader.path(2)[-1].text == "2"


async def test_waiting_messages_come_back_as_another_chat_is_gone_to(talk):
    await talk.begin(exchange("One", "1"), ChatCleared(), TurnStarted("user", "Two"))
    talk.outbox.submit("Three")
    talk.storage.open_last()
    assert talk.page.prompt.text == "Three"
    assert talk.feed.state.queue == []


async def test_what_is_typed_while_a_chat_is_looked_for_waits_for_it(talk):
    await talk.begin(exchange("One", "1"), ChatCleared())
    phases = []
    talk.storage.open_found(lambda recorder: phases.append(talk.feed.state.phase))
    await talk.page.settle()
    assert phases == ["busy"]
    assert talk.feed.state.phase == "ready"  # there is none, so the session is not asked
    assert talk.session.orders == []


async def test_why_a_chat_cannot_be_had_is_said_once_and_all_stays_as_it_is(talk):
    await talk.begin(exchange("One", "1"))
    talk.storage.open_found(refuse)
    await talk.page.settle()
    assert talk.page.told == ["the disk is full"]
    assert talk.feed.state.phase == "ready"
    assert await talk.storage.query_store(refuse, is_quiet=True) is None
    assert talk.page.told == ["the disk is full"]


async def test_the_message_that_was_looked_for_is_shown(talk):
    await talk.begin(exchange("One", "1"), exchange("Two", "2"), ChatCleared())
    wanted = talk.recorder.writer.reader.path(1)[1].id
    talk.storage.open_found(lambda recorder: find_chat(recorder, 1, wanted), wanted)
    await talk.opened()
    assert [message.text for message in talk.page.transcript.seen] == ["1"]


async def test_only_the_last_of_two_chats_is_opened(talk):
    await talk.begin(exchange("One", "1"), ChatCleared(), exchange("Two", "2"), ChatCleared())
    for chat in (1, 2):
        talk.storage.open_found(lambda recorder, chat=chat: find_chat(recorder, chat))
    assert await talk.opened() == ["Two", "2"]
    assert len(talk.session.orders) == 1


async def test_a_session_begins_with_the_last_chat_where_that_is_asked_for(talk):
    await talk.begin(exchange("One", "1"), ChatCleared())
    talk.storage.begin(continues=True)
    assert talk.session.orders == []
    await talk.page.settle()
    assert [order if order == "start" else order[0] for order in talk.session.orders] == [
        "open_chat",
        "start",
    ]


@pytest.mark.parametrize("continues", [True, False])
async def test_without_a_store_a_session_just_begins(talk, continues):
    storage = ChatStorage(talk.feed, talk.page, talk.outbox, None)
    storage.begin(continues=continues)
    await talk.page.settle()
    assert talk.session.orders == ["start"]
    assert await storage.query_store(refuse) is None
    assert talk.page.told == []
