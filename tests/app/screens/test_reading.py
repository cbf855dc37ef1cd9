"""What is done with a message: the one pointed at, else the last reply or its last code."""

from types import SimpleNamespace

import pytest

from mlxspec.trace.events import GenerationFinished, TurnStarted
from mlxspec_app.conversation.fold import fold
from mlxspec_app.conversation.messages import Reply
from mlxspec_app.screens.conversation.screen import ConversationScreen
from tests.support.scripted_session import ScriptedSession

CODE = "see\n```\na = 1\n```\nand\n```\nb = 2\n```\n"
TALK = (
    TurnStarted("user", "one"),
    GenerationFinished(1.0, "stop", CODE),
    TurnStarted("user", "two"),
    GenerationFinished(2.0, "stop", "no code"),
)


class Reader(ConversationScreen):
    """A screen that notes what is copied and told, with a pointer that a test moves."""

    transcript = None

    def __init__(self):
        super().__init__(ScriptedSession())
        self.feed.state = fold(TALK)
        self.transcript = SimpleNamespace(
            pointed_message=None, pointed_character=0, toggle_rendered=self.note
        )
        self.rendered, self.copied, self.told = [], [], []

    def note(self, reply):
        self.rendered.append(reply)

    def copy(self, text, if_empty):
        self.copied.append(text or if_empty)

    def notify(self, message, **_):
        self.told.append(message)


@pytest.fixture
def reader():
    return Reader()


def test_the_last_reply_is_copied_unless_another_message_is_pointed_at(reader):
    reader.action_copy_message()
    reader.transcript.pointed_message = reader.state.messages[0]
    reader.action_copy_message()
    assert reader.copied == ["no code", "one"]


def test_the_last_code_of_any_reply_is_copied_or_the_block_pointed_at(reader):
    reader.action_copy_code()
    reader.transcript.pointed_message = reader.state.messages[1]
    reader.transcript.pointed_character = CODE.index("a = 1")
    reader.action_copy_code()
    reader.transcript.pointed_message = reader.state.messages[3]
    reader.action_copy_code()
    assert reader.copied == ["b = 2\n", "a = 1\n", "this message has no code block"]


def test_where_nothing_was_said_there_is_nothing_to_copy(reader):
    reader.feed.state = fold([])
    reader.action_copy_message()
    reader.action_copy_code()
    assert reader.copied == ["there is no reply to copy yet", "no reply has a code block yet"]


def test_a_reply_is_rendered_or_shown_as_it_is_while_it_is_written_too(reader):
    reader.action_toggle_markdown()
    assert reader.rendered == [reader.state.messages[3]]
    reader.state.messages.append(Reply(spans=reader.state.messages[3].spans))
    reader.action_toggle_markdown()
    assert reader.rendered[1:] == [reader.state.messages[4]]
    reader.transcript.pointed_message = reader.state.messages[0]
    reader.action_toggle_markdown()
    assert reader.told == ["there is no reply to render here"]
