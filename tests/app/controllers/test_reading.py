"""What is done with a message: the one pointed at, else the last reply or its last code."""

import pytest

from mlxspec.trace.events import GenerationFinished, TurnStarted
from mlxspec_app.controllers.feed import Feed
from mlxspec_app.controllers.reading import MessageReader
from mlxspec_app.conversation.fold import fold
from mlxspec_app.conversation.messages import Reply
from tests.support.fake_page import FakePage

CODE = "see\n```\na = 1\n```\nand\n```\nb = 2\n```\n"
TALK = (
    TurnStarted("user", "one"),
    GenerationFinished(1.0, "stop", CODE),
    TurnStarted("user", "two"),
    GenerationFinished(2.0, "stop", "no code"),
)


@pytest.fixture
def page():
    return FakePage()


@pytest.fixture
def copied():
    return []


@pytest.fixture
def reader(page, copied):
    feed = Feed(None)
    feed.state = fold(TALK)
    return MessageReader(feed, page, lambda text, if_empty: copied.append(text or if_empty))


def messages(reader):
    return reader._feed.state.messages


def test_the_last_reply_is_copied_unless_another_message_is_pointed_at(reader, page, copied):
    reader.copy_message()
    page.transcript.pointed_message = messages(reader)[0]
    reader.copy_message()
    assert copied == ["no code", "one"]


def test_the_last_code_of_any_reply_is_copied_or_the_block_pointed_at(reader, page, copied):
    reader.copy_code()
    page.transcript.pointed_message = messages(reader)[1]
    page.transcript.pointed_character = CODE.index("a = 1")
    reader.copy_code()
    page.transcript.pointed_message = messages(reader)[3]
    reader.copy_code()
    assert copied == ["b = 2\n", "a = 1\n", "this message has no code block"]


def test_where_nothing_was_said_there_is_nothing_to_copy(reader, copied):
    reader._feed.state = fold([])
    reader.copy_message()
    reader.copy_code()
    assert copied == ["there is no reply to copy yet", "no reply has a code block yet"]


def test_a_reply_is_rendered_or_shown_as_it_is_while_it_is_written_too(reader, page):
    reader.toggle_markdown()
    assert page.transcript.rendered == [messages(reader)[3]]
    messages(reader).append(Reply(spans=messages(reader)[3].spans))
    reader.toggle_markdown()
    assert page.transcript.rendered[1:] == [messages(reader)[4]]
    page.transcript.pointed_message = messages(reader)[0]
    reader.toggle_markdown()
    assert page.told == ["there is no reply to render here"]
