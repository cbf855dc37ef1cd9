"""What can be done in a chat: keys and commands that have something to act on."""

import pytest

from mlxspec.trace.events import TurnStarted
from mlxspec_app.conversation.events import (
    LoadProgress,
    ModelChoice,
    SessionFailed,
    SessionOpening,
    SessionReady,
)
from mlxspec_app.conversation.fold import fold
from mlxspec_app.screens.chat.possible import is_possible
from tests.support.store_files import exchange

CHAT = ("stop", "replay", "model", "draft", "verify", "regenerate", "new_chat", "edit", "fork")
ACTIONS = (*CHAT, "toggle_tree")
LOADED = (SessionOpening("t", "d", ModelChoice()), SessionReady())


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
        ([*LOADED, SessionFailed("no model")], "replay model draft regenerate"),
        ([*LOADED, SessionFailed("the thread ended", is_over=True)], "replay"),
    ],
)
def test_what_can_be_done_depends_on_the_session_and_on_what_was_said(events, possible):
    state = fold(events)
    assert [name for name in ACTIONS if is_possible(name, state)] == [
        *possible.split(),
        "toggle_tree",
    ]


def test_messages_that_wait_can_be_given_up():
    state = fold([SessionOpening("t")])
    state.queue.append("Two")
    assert is_possible("stop", state)
