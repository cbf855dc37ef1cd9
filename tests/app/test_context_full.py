"""A chat that no longer fits: the user is asked once how to go on, and every way leads on."""

import time
from dataclasses import replace

import pytest

from mlxspec.chat.conversation import Conversation
from mlxspec.drafting.engines import prepare_loaded
from mlxspec.params import GenerationParams, Options
from mlxspec.trace.events import (
    GenerationFailed,
    GenerationFinished,
    GenerationStarted,
    TurnStarted,
)
from mlxspec_app.conversation.events import (
    ChatOpened,
    ContextFull,
    ModelChoice,
    SessionOpening,
    SessionReady,
)
from mlxspec_app.conversation.fold import fold
from mlxspec_app.conversation.messages import Message, Reply, Span
from mlxspec_app.conversation.orders import ForgetOldest, NewChat, OpenChat, Regenerate, Say
from mlxspec_app.conversation.state import ChatState
from mlxspec_app.screens.chat.context_full import ContextFullScreen, TickBox
from mlxspec_app.screens.chat.screen import ChatScreen
from mlxspec_app.sessions.engine_session import EngineSession
from mlxspec_app.settings.file import Settings, read_settings
from mlxspec_app.user.paths import find_paths
from mlxspec_app.user_data import UserData
from mlxspec_app.widgets.chat.status_bar import status_parts
from tests.support.app_driver import running
from tests.support.app_live import PATIENCE_S, FakeModels
from tests.support.scripted_session import ScriptedSession
from tests.support.toy_chat import toy_target

LOADED = ModelChoice("t", "pool")
EARLIER = (
    TurnStarted("user", "first"),
    GenerationFinished(1.0, "stop", "answer"),
)
REFUSED = (
    TurnStarted("user", "second"),
    GenerationFailed(0.0, "the prompt has 9 tokens; t takes 8"),
    ContextFull(8),
)


@pytest.fixture
def user_data(tmp_path):
    return UserData(find_paths(tmp_path))


def session(*news, choice=LOADED):
    return ScriptedSession(SessionOpening("t", "pool", choice), SessionReady(), *news)


async def test_the_ways_to_go_on_are_asked_for_and_the_answer_is_carried_out_and_kept(user_data):
    scripted = session(*EARLIER, *REFUSED)
    async with running(scripted, user_data=user_data) as driver:
        assert isinstance(driver.app.screen, ContextFullScreen)
        box = driver.app.screen.query_one(TickBox)
        assert (box.value, box.BUTTON_INNER) == (False, " ")
        for words in ("context of 8 tokens", "Drop the oldest", "Start a new chat"):
            assert words in driver.shown
        await driver.press("down", "down", "tab", "space", "shift+tab", "enter")
        assert isinstance(driver.app.screen, ChatScreen)
        assert scripted.orders == ["start", NewChat(), Say("second")]
        await driver.app.workers.wait_for_complete()
    assert read_settings(user_data.paths.settings).settings.context_full == "new"


async def test_an_answer_is_for_once_where_nothing_is_ticked(user_data):
    async with running(session(*EARLIER, *REFUSED), user_data=user_data) as driver:
        await driver.press("enter")
        driver.app.change("ink", "off")
        assert driver.session.orders == ["start", ForgetOldest(True), Regenerate()]
        await driver.app.workers.wait_for_complete()
    assert read_settings(user_data.paths.settings).settings.context_full == "ask"


async def test_dropping_is_told_first_and_does_not_help_a_message_that_is_too_long_alone(user_data):
    user_data.settings = Settings(context_full="drop")
    async with running(session(*REFUSED), user_data=user_data) as driver:
        assert driver.session.orders == [ForgetOldest(True), "start"]
        assert isinstance(driver.app.screen, ContextFullScreen)
        assert "This message alone exceeds" in driver.shown
        assert "Start a new chat" not in driver.shown


def open_toy(choice, on_progress):
    options = Options(drafter="suffix", max_kv_size=choice.max_kv_size)
    return Conversation(prepare_loaded(toy_target(max_position_embeddings=32), options).engine)


def is_answered(state):
    last = state.messages[-1] if state.messages else None
    return isinstance(last, Reply) and last.reason is not None and state.messages[-2].text == "ab"


async def until(driver, condition):
    deadline = time.monotonic() + PATIENCE_S
    while not condition(driver.screen.state):
        assert time.monotonic() < deadline, driver.screen.state
        await driver.settle()


@pytest.mark.parametrize("policy", ["drop", "rotate", "new"])
async def test_every_way_ends_in_an_answer_of_a_real_engine(user_data, policy):
    user_data.settings = Settings(context_full=policy)
    earlier = ChatOpened((Message("user", [Span("abc" * 5)]), Reply(spans=[Span("def" * 4)])))
    live = EngineSession(FakeModels(open_toy), GenerationParams(max_tokens=4))
    try:
        async with running(live, user_data=user_data) as driver:
            live.send(OpenChat(earlier))
            await until(driver, lambda state: len(state.messages) == 2)
            await driver.say("ab")
            await until(driver, is_answered)
            assert driver.screen.state.reply.error == ""
            assert driver.screen.state.reply.rounds
    finally:
        live.close()


def recorded(cache):
    return fold([GenerationStarted("t", "none", cache=cache)])


@pytest.mark.parametrize(("used", "sign"), [(89, "ctx"), (90, "! ctx"), (100, "! ctx")])
def test_a_context_that_is_nearly_full_is_marked(used, sign):
    state = ChatState(target="t", context=used, context_length=100)
    assert status_parts(state)[-1].text.startswith(sign)


def test_a_message_that_is_too_long_alone_is_told_from_one_that_earlier_turns_crowd_out():
    chat = open_toy(LOADED, None)
    assert chat.fits_alone("ab")
    assert not chat.fits_alone("ab" * 40)


@pytest.mark.parametrize(
    ("state", "words"),
    [
        (ChatState(target="t", context_length=9, choice=replace(LOADED, max_kv_size=4096)), "4.1k"),
        (recorded("rotating 64 (4 kept)"), "64"),
        (recorded("rotating 64 (4 kept), 8-bit"), "64"),
        (recorded("full"), ""),
        (ChatState(target="t", choice=LOADED), ""),
    ],
)
def test_a_rotating_cache_stands_in_the_header(state, words):
    shown = [part.text for part in status_parts(state) if part.text.startswith("rotating")]
    assert shown == ([f"rotating cache {words}"] if words else [])
