"""Chats that go on: opened, forked, edited, written again, and kept whatever happens."""

import os
import signal
import subprocess
import sys
from itertools import takewhile

from mlxspec_app.conversation.events import SessionReady
from mlxspec_app.conversation.fold import fold
from mlxspec_app.conversation.orders import Regenerate, SetSystem
from mlxspec_app.widgets.chat.prompt import Prompt
from mlxspec_app.widgets.chat.version_mark import VersionMark
from tests.support.app_driver import chat, texts
from tests.support.paths import ROOT
from tests.support.scripted_session import ScriptedSession
from tests.support.store_files import exchange
from tests.support.user_data_files import enter, fill, kept_chat, kept_texts, press, rest
from tests.traces import make_fake

DYING = """
import asyncio, sys
from pathlib import Path
from tests.support.user_data_files import enter, kept_chat

def tell(line):
    print(line, file=sys.__stdout__, flush=True)  # the app's own stdout is never flushed

async def main():
    async with kept_chat(Path(sys.argv[1]), speed=1.0) as driver:
        await enter(driver, "Hello")
        while True:
            await driver.wait(0.05)
            reply = driver.screen.state.reply
            if reply is not None and reply.rounds:
                await driver.screen.chats.query_store(lambda recorder: None)
                tell(reply.text.encode().hex())
                if len(reply.rounds) > 5:
                    tell("enough")
                    await asyncio.sleep(60)  # to be killed

asyncio.run(main())
"""


def prompt(driver):
    return driver.screen.query_one(Prompt)


def marks(driver):
    return [str(mark.render()) for mark in driver.screen.query(VersionMark)]


# ---- beginning and going on ----------------------------------------------------------------


async def test_the_empty_page_names_the_last_chat(tmp_path):
    fill(tmp_path, "Tides", "The sky")
    async with kept_chat(tmp_path) as driver:
        assert "Ctrl+L: 2 chats; last: The sky, just now" in driver.shown


async def test_a_chat_is_gone_on_with_by_a_command_or_from_the_start(tmp_path):
    fill(tmp_path, "Tides")
    async with kept_chat(tmp_path) as driver:
        await enter(driver, "/continue")
        await enter(driver, "More")
    async with kept_chat(tmp_path, continues=True) as driver:
        assert texts(driver) == ["Tides", "An answer.", "More", make_fake.PROSE]
        assert {span.kind for span in driver.screen.state.reply.spans} > {"accepted", "corrected"}
        assert "tokens/s" in driver.shown
        assert prompt(driver).border_subtitle == "Tides"
        await enter(driver, "Even more")
    assert kept_texts(tmp_path, 1)[4:] == ["Even more", make_fake.PROSE]


async def test_without_a_chat_to_go_on_with_an_empty_one_begins(tmp_path):
    async with kept_chat(tmp_path, continues=True) as driver:
        await enter(driver, "Hello")
        assert texts(driver) == ["Hello", make_fake.PROSE]


async def test_an_opened_chat_brings_its_system_prompt(tmp_path):
    async with kept_chat(tmp_path) as driver:
        driver.session.send(SetSystem("Be brief"))
        await enter(driver, "Hello")
    session = ScriptedSession(SessionReady())
    async with kept_chat(tmp_path, session) as driver:
        await enter(driver, "/continue")
        (opened,) = session.opened
        assert (opened.system, opened.chat, opened.leaf) == ("Be brief", 1, 2)


async def test_another_chat_is_opened_once_the_reply_was_stopped_and_kept(tmp_path):
    fill(tmp_path, "Tides")
    async with kept_chat(tmp_path, speed=1.0) as driver:
        await enter(driver, "Hello")
        await driver.wait(0.5)
        written = driver.screen.state.reply
        await enter(driver, "What waits")
        await enter(driver, "/continue")
        assert texts(driver) == ["Tides", "An answer."]
        assert (written.reason, prompt(driver).text) == ("cancelled", "What waits")
    assert kept_texts(tmp_path, 2) == ["Hello", written.text]
    assert 0 < len(written.text) < len(make_fake.PROSE)


async def test_what_is_typed_while_a_chat_is_opened_is_said_in_it(tmp_path):
    fill(tmp_path, "Tides")
    async with kept_chat(tmp_path) as driver:
        await driver.say("/continue")
        await driver.say("More")
        await rest(driver)
        assert texts(driver) == ["Tides", "An answer.", "More", make_fake.PROSE]


async def test_a_reply_that_a_crash_cut_off_is_offered_and_loses_no_finished_round(tmp_path):
    path = os.pathsep.join(str(ROOT / folder) for folder in (".", "app", "tests"))
    program = [sys.executable, "-c", DYING, str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": path}
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            *_, seen = takewhile(lambda line: line != "enough\n", process.stdout)
        finally:
            process.send_signal(signal.SIGKILL)
    async with kept_chat(tmp_path) as driver:
        assert "The last chat ended in the middle of a reply: /continue opens it." in driver.shown
        await enter(driver, "/continue")
        turn, reply = driver.screen.state.messages
        kept = bytes.fromhex(seen).decode()
        assert (turn.text, reply.text[: len(kept)]) == ("Hello", kept)
        assert make_fake.PROSE.startswith(reply.text)
        assert "ended in the middle of this reply" in driver.shown
        await press(driver, "ctrl+r")
        assert texts(driver) == ["Hello", make_fake.PROSE]
    async with kept_chat(tmp_path) as driver:
        assert "last: Hello" in driver.shown


# ---- titles and copies ---------------------------------------------------------------------


async def test_a_chat_is_renamed_once_it_has_a_title(tmp_path):
    async with kept_chat(tmp_path) as driver:
        await enter(driver, "/rename Nothing")
        assert "this chat has no messages yet" in driver.shown
        await enter(driver, "Hello")
        assert prompt(driver).border_subtitle == "Hello"
        await enter(driver, "/rename My chat")
        assert prompt(driver).border_subtitle == "My chat"


async def test_a_fork_goes_on_from_the_message_that_is_pointed_at(tmp_path):
    async with kept_chat(tmp_path) as driver:
        await enter(driver, "One")
        await enter(driver, "Two")
        await press(driver, "tab", "left", "k", "k", "b")
        assert texts(driver) == ["One", make_fake.PROSE]
        assert prompt(driver).border_subtitle == "One · fork"
        await enter(driver, "/continue")
        assert texts(driver)[2] == "Two"


# ---- versions ------------------------------------------------------------------------------


async def test_an_edited_turn_is_said_anew_and_the_old_branch_is_kept(tmp_path):
    async with kept_chat(tmp_path) as driver:
        await enter(driver, "One")
        await enter(driver, "Two")
        prompt(driver).text = "a draft"
        await press(driver, "tab", "left", "k", "k", "k", "e")
        assert driver.app.focused is prompt(driver)
        assert "editing turn 1 · Enter sends, Esc cancels" in driver.shown
        assert prompt(driver).text == "One"
        await enter(driver, "Un")
        assert texts(driver)[0::2] == ["Un"]
        assert prompt(driver).text == "a draft"
        assert marks(driver) == ["< 2/2  "]
        await press(driver, "shift+tab", "less_than_sign")
        assert texts(driver)[0::2] == ["One", "Two"]
        assert marks(driver) == ["  1/2 >"]


async def test_escape_leaves_an_edited_turn_as_it_was(tmp_path):
    async with kept_chat(tmp_path) as driver:
        await enter(driver, "One")
        await enter(driver, "/edit")
        await press(driver, "x", "escape")
        assert prompt(driver).text == ""
        assert "editing" not in driver.shown
        await enter(driver, "Two")
        assert texts(driver)[0::2] == ["One", "Two"]


async def test_a_turn_can_be_edited_while_its_reply_is_being_written(tmp_path):
    async with kept_chat(tmp_path, speed=1.0) as driver:
        await enter(driver, "One")
        await driver.wait(0.5)
        await enter(driver, "/edit")
        await enter(driver, "Un")
        await driver.wait(60)
        shown = texts(driver)
        assert shown[0::2] == ["Un"]
    assert kept_texts(tmp_path, 1) == shown


async def test_a_turn_is_edited_without_a_store_as_well():
    async with chat() as driver:
        await driver.say("One")
        await driver.say("/edit")
        await driver.say("Un")
        assert texts(driver)[0::2] == ["Un"]
        await driver.press("ctrl+l")
        assert "no chats are kept in this session" in driver.shown
        await driver.say("/fork")
        assert "/fork cannot be used here" in driver.shown


async def test_a_click_on_its_mark_shows_another_version_of_a_reply(tmp_path):
    async with kept_chat(tmp_path) as driver:
        await enter(driver, "One")
        first = driver.screen.state.reply
        await press(driver, "ctrl+r")
        assert marks(driver) == ["< 2/2  "]
        await driver.pilot.click(VersionMark, offset=(0, 0))
        await rest(driver)
        assert marks(driver) == ["  1/2 >"]
        assert driver.screen.state.reply is not first
        assert driver.screen.state.reply.text == first.text


async def test_only_a_new_seed_is_drawn_anew(tmp_path):
    seeds = []
    session = ScriptedSession(SessionReady())
    session.settings.adjust = lambda name, value: seeds.append((name, int(value)))
    async with kept_chat(tmp_path, session) as driver:
        for command, num_seeds in (("/retry", 0), ("/retry same", 0), ("/retry new", 1)):
            driver.screen.feed.state = fold([SessionReady(), *exchange("One", "1")])
            await enter(driver, command)
            assert session.orders.pop() == Regenerate()
            assert len(seeds) == num_seeds
        assert seeds[0][0] == "seed"
        assert 0 <= seeds[0][1] < 2**32


async def test_a_recording_says_that_it_takes_no_other_seed():
    async with chat() as driver:
        await driver.say("One")
        reply = driver.screen.state.reply
        await driver.say("/retry new")
        assert "this is a recording" in driver.shown
        assert driver.screen.state.reply is reply


async def test_a_title_is_shown_as_it_is_whatever_it_holds(tmp_path):
    title = r"[red]x[/b] a[0] \\[b] [/]"
    fill(tmp_path, title)
    async with kept_chat(tmp_path) as driver:
        assert f"last: {title}" in driver.shown
        await enter(driver, "/continue")
        assert title in driver.shown.splitlines()[-2]
        await press(driver, "ctrl+l", "d")
        assert f"{title} · u restores it" in driver.shown
