"""Talking: orders, keys and the prompt, over recorded replies."""

import pytest

from mlxspec_app.conversation.events import SessionReady
from mlxspec_app.widgets.chat.prompt import Prompt
from mlxspec_app.widgets.chat.token_message import TokenMessage
from tests.support.app_driver import chat, running, texts
from tests.support.scripted_session import ScriptedSession
from tests.traces import make_fake


async def test_a_message_is_answered_again_and_a_new_chat_is_empty():
    async with chat() as driver:
        await driver.say("Explain it.")
        assert texts(driver) == ["Explain it.", make_fake.PROSE]
        assert "\u276f Explain it." in driver.shown
        assert "tokens takes hardly longer" in driver.shown
        first = driver.screen.state.reply
        await driver.press("ctrl+r")
        assert texts(driver) == ["Explain it.", make_fake.PROSE]
        assert driver.screen.state.reply is not first
        assert len(driver.screen.query(TokenMessage)) == 2
        await driver.press("ctrl+n")
        assert texts(driver) == []
        assert len(driver.screen.query(TokenMessage)) == 0
        assert "Write a short poem" in driver.shown


async def test_text_streams_in_until_escape_stops_it_and_gives_waiting_messages_back():
    async with chat(speed=1.0) as driver:
        await driver.say("Explain it.")
        await driver.wait(0.5)
        some = driver.screen.state.reply.text
        await driver.say("two")
        assert "waits  two" in driver.shown
        await driver.wait(0.3)
        more = driver.screen.state.reply.text
        assert 0 < len(some) < len(more) < len(make_fake.PROSE)
        assert more.startswith(some)
        await driver.press("escape")
        await driver.settle()
        assert driver.screen.state.reply.reason == "cancelled"
        assert "stopped" in driver.shown
        assert driver.screen.query_one(Prompt).text == "two"
        await driver.press("ctrl+n")
        await driver.say("Again.")
        await driver.wait(60)
        assert texts(driver) == ["Again.", make_fake.PROSE]


async def test_an_example_can_be_chosen():
    async with chat() as driver:
        await driver.press("shift+tab", "down", "enter")
        assert texts(driver)[0] == "List the planets of the solar system as JSON."
        assert isinstance(driver.app.focused, Prompt)


async def test_keys_without_an_object_do_nothing():
    session = ScriptedSession(SessionReady())
    async with running(session) as driver:
        await driver.press("ctrl+r", "ctrl+n", "escape", "space", "enter")
        assert session.orders == ["start"]


async def test_the_prompt_grows_with_its_text_and_up_brings_sent_messages_back():
    async with chat() as driver:
        await driver.press("a", "ctrl+j", "b", "ctrl+j", "c")
        prompt = driver.screen.query_one(Prompt)
        assert (prompt.text, prompt.size.height) == ("a\nb\nc", 3)
        await driver.press("enter")
        assert prompt.text == ""
        await driver.say("two")
        await driver.say("three")
        assert "the recording is over and starts again" in driver.shown
        seen = []
        for key in ("up", "up", "down", "down"):
            await driver.press(key)
            seen.append(prompt.text)
        assert seen == ["three", "two", "three", ""]
        await driver.press("x", "up")
        assert prompt.text == "x"  # what is being typed stays


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
