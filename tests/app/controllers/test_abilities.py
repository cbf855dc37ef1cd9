"""What can be done in a chat: keys and commands that have something to act on."""

import pytest

from mlxspec.trace.events import TurnStarted
from mlxspec_app.controllers.abilities import Abilities
from mlxspec_app.controllers.model_switch import ModelSwitch
from mlxspec_app.conversation.session import (
    LoadProgress,
    ModelChoice,
    ReplyDiscarded,
    SessionFailed,
    SessionOpening,
    SessionReady,
)
from tests.support.store_files import exchange, reply_events

CHAT = ("stop", "replay", "model", "draft", "verify", "regenerate", "new_chat", "edit", "fork")
ACTIONS = (*CHAT, "version", "toggle_tree")
LOADED = (SessionOpening("t", "d", ModelChoice()), SessionReady())


@pytest.fixture
def abilities(talk):
    models = ModelSwitch(talk.feed, talk.page, lambda part: True)
    return Abilities(talk.feed, talk.storage, talk.editor, models)


@pytest.mark.parametrize(
    ("events", "possible"),
    [
        ([SessionOpening("t")], ""),
        ([SessionOpening("t"), LoadProgress(1, 2)], "stop"),
        ([SessionReady()], ""),
        (LOADED, "model draft"),
        ([*LOADED, TurnStarted("system", "be brief")], "model draft"),
        ([*LOADED, TurnStarted("user", "One")], "stop model draft new_chat edit fork"),
        (
            [*LOADED, *exchange("One", "1")],
            "replay model draft verify regenerate new_chat edit fork",
        ),
        (
            [*LOADED, *exchange("One", "1"), ReplyDiscarded(), *reply_events("1b")],
            "replay model draft verify regenerate new_chat edit fork version",
        ),
        ([*LOADED, SessionFailed("no model")], "replay model draft regenerate"),
        ([*LOADED, SessionFailed("the thread ended", is_over=True)], "replay"),
    ],
)
async def test_what_can_be_done_depends_on_the_session_and_on_what_was_said(
    talk, abilities, events, possible
):
    await talk.hear(events)
    assert [name for name in ACTIONS if abilities.allows(name)] == [
        *possible.split(),
        "toggle_tree",
    ]


async def test_messages_that_wait_and_turns_that_are_edited_can_be_given_up(talk, abilities):
    await talk.begin(exchange("One", "1"))
    assert not abilities.allows("stop")
    talk.editor.begin()
    assert abilities.allows("stop")
    talk.editor.end()
    await talk.hear(SessionOpening("other"))
    assert not abilities.allows("stop")
    talk.outbox.submit("Two")
    assert abilities.allows("stop")


async def test_without_a_store_there_is_nothing_to_fork(talk, abilities):
    await talk.begin(exchange("One", "1"))
    talk.user_data.store = None
    assert not abilities.allows("fork")
