"""Other chats: a new one, one of the list, another title."""

from mlxspec_app.conversation.session import ChatCleared
from mlxspec_app.store.entries import ChosenChat
from tests.support.store_files import exchange


async def test_a_new_chat_ends_the_reply_and_gives_back_what_waits(talk):
    await talk.begin(exchange("One", "1"))
    talk.outbox.submit("Two")
    talk.outbox.submit("Three")
    talk.chats.begin_new()
    assert talk.session.orders == [("send", "Two"), "stop", "new_chat"]
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
    first = talk.recorder.writer.reader.path(1)[0].id
    talk.chats.follow_choice(ChosenChat(1, first))
    await talk.opened()
    assert talk.page.transcript.seen[-1].text == "One"


async def test_the_list_leads_to_a_new_chat_too(talk):
    await talk.begin(exchange("One", "1"))
    talk.chats.follow_choice(ChosenChat(None))
    assert talk.session.orders == ["stop", "new_chat"]


async def test_a_chat_that_is_deleted_is_left_and_others_are_not(talk):
    await talk.begin(exchange("One", "1"))
    talk.chats.leave_deleted(7)
    assert talk.session.orders == []
    talk.chats.leave_deleted(1)
    assert talk.session.orders == ["stop", "new_chat"]


async def test_a_chat_has_a_title_once_something_was_said(talk):
    await talk.begin()
    talk.chats.rename("Mine")
    await talk.page.settle()
    assert "this chat has no messages yet" in talk.page.told[0]
    await talk.hear(exchange("One", "1"))
    talk.chats.rename("Mine")
    await talk.page.settle()
    assert talk.page.prompt.chat == "Mine"
