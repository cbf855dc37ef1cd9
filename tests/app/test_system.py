"""The system prompt: set in the chat, shown in it, and kept with it."""

import time

import pytest

from mlxspec.trace.events import GenerationFinished, TurnStarted
from mlxspec.trace.file import read_trace
from mlxspec_app.conversation.events import ChatCleared, ChatOpened, SessionReady
from mlxspec_app.conversation.fold import apply, fold
from mlxspec_app.conversation.orders import SetSystem
from mlxspec_app.export.markdown import render
from mlxspec_app.export.recording import Recording
from mlxspec_app.playback.events_of import events_of
from mlxspec_app.run import as_plain_text
from mlxspec_app.sessions.engine_session import EngineSession
from mlxspec_app.widgets.chat.prompt import Prompt
from mlxspec_app.widgets.chat.token_message import TokenMessage
from tests.support.app_driver import chat, running, texts
from tests.support.app_live import PATIENCE_S, FakeConversation, FakeModels
from tests.support.scripted_session import ScriptedSession
from tests.support.store_files import exchange, path, record

BRIEF = TurnStarted("system", "Be brief.")
EXCHANGE = (TurnStarted("user", "Hello"), GenerationFinished(1.0, "stop", "Hi"))


async def test_a_system_prompt_has_a_row_of_its_own():
    async with chat() as driver:
        await driver.say("Explain it.")
        await driver.say("/system Be brief.\nNo lists.")
        assert texts(driver)[-1] == "Be brief.\nNo lists."
        assert driver.screen.query(TokenMessage).last().border_title == "system prompt"
        assert "system prompt" in driver.shown
        await driver.say("/system")
        assert driver.screen.query_one(Prompt).text == "/system Be brief.\nNo lists."


async def test_a_dash_returns_to_the_models_own():
    session = ScriptedSession(SessionReady(), BRIEF)
    async with running(session) as driver:
        assert "system prompt: Be brief." in driver.shown
        assert "Write a short poem" in driver.shown  # the first page stays
        await driver.say("/system -")
        assert session.orders == ["start", SetSystem("")]


def test_a_prompt_under_which_nothing_was_said_is_replaced():
    state = fold([BRIEF, TurnStarted("system", "Be long.")])
    assert [message.text for message in state.messages] == ["Be long."]
    assert state.is_empty
    assert not fold(EXCHANGE, state).is_empty


@pytest.mark.parametrize("told", [[], [BRIEF]])
def test_the_models_own_prompt_leaves_nothing_where_no_other_was_used(told):
    state = fold([*told, TurnStarted("system", ""), *EXCHANGE, TurnStarted("system", "")])
    assert [message.role for message in state.messages] == ["user", "assistant"]


def test_the_models_own_prompt_is_said_after_one_that_was_used_and_is_no_text_of_its_own():
    state = fold([BRIEF, *EXCHANGE, TurnStarted("system", ""), *EXCHANGE])
    assert state.system == ""
    assert "system> (the model's own)" in as_plain_text(state.messages)
    events = events_of(state)
    assert [event.text for event in events if getattr(event, "role", "") == "system"] == [
        "Be brief.",
        "",
    ]
    page = render(Recording.of("x", events))
    assert "(the model's own)" in page


def test_a_new_chat_keeps_the_system_prompt_and_shows_it():
    state = fold([BRIEF, *EXCHANGE, ChatCleared()])
    assert [message.text for message in state.messages] == ["Be brief."]
    assert state.system == "Be brief."
    apply(state, ChatOpened(()))
    assert state.messages == []


def test_a_prompt_of_the_command_line_is_told_like_one_that_was_typed(tmp_path):
    def refuse(choice, on_progress):
        raise AssertionError

    trace = tmp_path / "trace.jsonl"
    live = EngineSession(FakeModels(refuse), None, trace, system="Be brief.")
    live.start()
    live.close()
    assert BRIEF in live.drain()
    assert list(read_trace(trace)) == [BRIEF]


def test_a_model_that_is_loaded_takes_the_prompt_over(tmp_path):
    opened = []

    def open_one(choice, on_progress):
        opened.append(FakeConversation(on_progress))
        return opened[-1]

    live = EngineSession(FakeModels(open_one), None, system="Be brief.")
    live.start()
    deadline = time.monotonic() + PATIENCE_S
    while live.busy and time.monotonic() < deadline:
        time.sleep(0.001)
    assert opened[0].system == "Be brief."
    live.close()


def test_the_prompt_is_kept_with_the_chat_and_in_its_traces(recorder, tmp_path):
    record(recorder, BRIEF, exchange("Hello", "Hi"))
    assert recorder.writer.chat(recorder.chat).system == "Be brief."
    trace = tmp_path / "traces" / path(recorder)[-1].generation.trace
    assert list(read_trace(trace)) == [BRIEF, *exchange("Hello", "Hi")]
