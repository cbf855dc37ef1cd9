"""Talking: orders, keys and the prompt, over recorded replies."""

import pytest

from mlxspec_app.conversation.events import SessionReady
from mlxspec_app.widgets.chat.prompt import Prompt
from mlxspec_app.widgets.chat.token_message import TokenMessage
from tests.support.app_driver import chat, running, texts
from tests.support.scripted_session import ScriptedSession
from tests.traces import make_fake


async def test_a_message_is_answered():
    async with chat() as driver:
        await driver.say("Explain it.")
        assert texts(driver) == ["Explain it.", make_fake.PROSE]
        assert "\u276f Explain it." in driver.shown
        assert "tokens takes hardly longer" in driver.shown


async def test_text_streams_in_as_time_passes():
    async with chat(speed=1.0) as driver:
        await driver.say("Explain it.")
        await driver.wait(0.5)
        some = driver.screen.state.reply.text
        await driver.wait(0.3)
        more = driver.screen.state.reply.text
        assert 0 < len(some) < len(more) < len(make_fake.PROSE)
        assert more.startswith(some)


async def test_an_example_can_be_chosen():
    async with chat() as driver:
        await driver.press("shift+tab", "down", "enter")
        assert texts(driver)[0] == "List the planets of the solar system as JSON."
        assert isinstance(driver.app.focused, Prompt)


async def test_escape_stops_the_reply():
    async with chat(speed=1.0) as driver:
        await driver.say("Explain it.")
        await driver.wait(0.5)
        await driver.press("escape")
        assert driver.screen.state.reply.reason == "cancelled"
        assert "stopped" in driver.shown
        assert driver.screen.state.phase == "ready"


async def test_what_is_typed_while_busy_waits_its_turn():
    async with chat(speed=1.0) as driver:
        await driver.say("one")
        await driver.wait(0.2)
        await driver.say("two")
        assert driver.screen.state.queue == ["two"]
        assert "waits  two" in driver.shown
        await driver.wait(60)
        assert driver.screen.state.queue == []
        await driver.wait(60)
        assert texts(driver) == ["one", make_fake.PROSE, "two", make_fake.CODE]


async def test_stopping_gives_waiting_messages_back():
    async with chat(speed=1.0) as driver:
        await driver.say("one")
        await driver.say("two")
        await driver.press("escape")
        await driver.settle()
        assert driver.screen.query_one(Prompt).text == "two"
        assert texts(driver)[0] == "one"
        assert "two" not in texts(driver)


async def test_regenerating_replaces_the_reply():
    async with chat() as driver:
        await driver.say("Explain it.")
        first = driver.screen.state.reply
        await driver.press("ctrl+r")
        assert texts(driver) == ["Explain it.", make_fake.PROSE]
        assert driver.screen.state.reply is not first
        assert len(driver.screen.query(TokenMessage)) == 2


async def test_keys_without_an_object_do_nothing():
    session = ScriptedSession(SessionReady())
    async with running(session) as driver:
        await driver.press("ctrl+r", "ctrl+n", "escape", "space", "enter")
        assert session.orders == ["start"]


async def test_a_new_chat_is_empty():
    async with chat() as driver:
        await driver.say("Explain it.")
        await driver.press("ctrl+n")
        assert texts(driver) == []
        assert len(driver.screen.query(TokenMessage)) == 0
        assert "Write a short poem" in driver.shown


async def test_a_new_chat_can_begin_while_a_reply_is_being_written():
    async with chat(speed=1.0) as driver:
        await driver.say("Explain it.")
        await driver.wait(0.5)
        await driver.press("ctrl+n")
        await driver.say("Again.")
        await driver.wait(60)
        assert texts(driver) == ["Again.", make_fake.PROSE]


async def test_the_prompt_grows_with_its_text():
    async with chat() as driver:
        await driver.press("a", "ctrl+j", "b", "ctrl+j", "c")
        prompt = driver.screen.query_one(Prompt)
        assert prompt.text == "a\nb\nc"
        assert prompt.size.height == 3
        await driver.press("enter")
        assert texts(driver)[0] == "a\nb\nc"
        assert prompt.text == ""


async def test_up_brings_sent_messages_back():
    async with chat() as driver:
        await driver.say("one")
        await driver.say("two")
        prompt = driver.screen.query_one(Prompt)
        seen = []
        for key in ("up", "up", "up", "down", "down"):
            await driver.press(key)
            seen.append(prompt.text)
        assert seen == ["two", "one", "one", "two", ""]


async def test_up_does_not_overwrite_what_is_being_typed():
    async with chat() as driver:
        await driver.say("one")
        await driver.press("x", "up")
        assert driver.screen.query_one(Prompt).text == "x"


@pytest.mark.parametrize("keys", [("ctrl+c", "ctrl+c"), ("ctrl+q",), ("ctrl+d",)])
async def test_quits_cleanly(keys):
    async with chat() as driver:
        await driver.pilot.press(*keys)
        await driver.pilot.pause()
        assert driver.app.return_code == 0


async def test_ctrl_c_copies_a_selection_instead_of_quitting(monkeypatch):
    monkeypatch.setattr("shutil.which", lambda name: None)
    async with chat() as driver:
        await driver.say("Explain it.")
        driver.screen.query(TokenMessage).first().text_select_all()
        await driver.press("ctrl+c")
        assert driver.app.clipboard == "Explain it."
        assert "Sent to the terminal" in driver.shown
        assert driver.app.return_code is None


async def test_a_recording_that_begins_anew_says_so():
    async with chat() as driver:
        for _ in range(3):
            await driver.say("Explain it.")
        assert "the recording is over and starts again" in driver.shown
