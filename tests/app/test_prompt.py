"""The prompt: long pastes, files, and what was sent in earlier sessions."""

import re

import pytest
from textual import events

from mlxspec_app.conversation.events import SessionReady
from mlxspec_app.conversation.orders import Say
from mlxspec_app.user.paths import find_paths
from mlxspec_app.user_data import UserData
from mlxspec_app.widgets.chat.prompt import Prompt
from tests.support.app_driver import chat, running, texts
from tests.support.scripted_session import ScriptedSession

LONG = "line\n" * 211 + "end"


async def paste(driver, text):
    driver.app.post_message(events.Paste(text))
    await driver.pilot.pause()


async def test_a_long_paste_is_one_line_and_is_sent_whole():
    async with running(ScriptedSession(SessionReady())) as driver:
        await driver.press("a", "space")
        await paste(driver, LONG)
        assert driver.screen.query_one(Prompt).text == "a [Pasted 212 lines]"
        await driver.press("enter")
        assert driver.session.orders[-1] == Say(f"a {LONG}")
        await driver.press("up")
        assert driver.screen.query_one(Prompt).text == "[Pasted 212 lines, 2]"


async def test_a_short_paste_is_pasted():
    async with running(ScriptedSession(SessionReady())) as driver:
        await paste(driver, "one\ntwo")
        assert driver.screen.query_one(Prompt).text == "one\ntwo"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notes.txt").write_text("buy milk")
    (tmp_path / "news").mkdir()
    return tmp_path


async def test_a_file_is_completed_and_sent_along(folder):
    async with running(ScriptedSession(SessionReady())) as driver:
        await driver.press(*"see @n")
        await driver.settle()
        assert re.search(r"@news/ +Tab", driver.shown)
        await driver.press("o", "tab")
        assert driver.screen.query_one(Prompt).text == "see @notes.txt "
        await driver.press("enter")
        said = Say("see @notes.txt\n\nnotes.txt:\n```\nbuy milk\n```")
        assert driver.session.orders[-1] == said


async def test_a_file_that_is_not_there_gives_the_message_back(folder):
    async with running(ScriptedSession(SessionReady())) as driver:
        await driver.say("see @milk.txt")
        assert driver.session.orders == ["start"]
        assert driver.screen.query_one(Prompt).text == "see @milk.txt"
        assert "the file milk.txt does not exist" in driver.shown


async def test_what_was_sent_in_an_earlier_session_comes_back(tmp_path):
    for said in ("one", "two"):
        user_data = UserData(find_paths(tmp_path))
        async with chat(user_data=user_data) as driver:
            user_data.store_chats_of(driver.session)
            await driver.say(said)
        user_data.close()
    user_data = UserData(find_paths(tmp_path))
    user_data.store_chats_of(ScriptedSession())
    async with chat(user_data=user_data) as driver:
        await driver.app.workers.wait_for_complete()
        seen = []
        for key in ("up", "up", "up"):
            await driver.press(key)
            seen.append(driver.screen.query_one(Prompt).text)
        assert seen == ["two", "one", "one"]
        assert texts(driver) == []
    user_data.close()


@pytest.mark.parametrize("key", ["pageup", "pagedown"])
async def test_the_transcript_is_read_while_the_prompt_has_the_focus(key):
    async with chat(size=(60, 20)) as driver:
        for _ in range(3):
            await driver.say("Explain it.")
        transcript = driver.screen.query_one("#transcript")
        transcript.scroll_to(y=4, animate=False)
        await driver.settle()
        before = transcript.scroll_y
        await driver.press(key)
        assert isinstance(driver.app.focused, Prompt)
        assert (transcript.scroll_y - before) * {"pageup": -1, "pagedown": 1}[key] > 0
