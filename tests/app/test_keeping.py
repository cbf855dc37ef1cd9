"""Chats that go on: opened, forked, edited, written again, and kept whatever happens."""

import os
import signal
import subprocess
import sys
from itertools import takewhile

from mlxspec_app.widgets.chat.message_rows import VersionMark
from mlxspec_app.widgets.chat.prompt import Prompt
from tests.support.app_driver import chat, texts
from tests.support.paths import ROOT
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


async def test_what_is_typed_while_a_chat_is_opened_is_said_in_it(tmp_path):
    fill(tmp_path, "Tides")
    async with kept_chat(tmp_path) as driver:
        await driver.say("/continue")
        await driver.say("More")
        await rest(driver)
        assert texts(driver) == ["Tides", "An answer.", "More", make_fake.PROSE]


async def test_a_reply_that_a_crash_cut_off_loses_no_finished_round(tmp_path):
    path = os.pathsep.join(str(ROOT / folder) for folder in (".", "app", "tests"))
    program = [sys.executable, "-c", DYING, str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": path}
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            *_, seen = takewhile(lambda line: line != "enough\n", process.stdout)
        finally:
            process.send_signal(signal.SIGKILL)
    async with kept_chat(tmp_path) as driver:
        assert "last: Hello" in driver.shown
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


async def test_keys_and_commands_edit_fork_and_rename_a_chat_and_switch_its_versions(tmp_path):
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
        prompt(driver).focus()
        await enter(driver, "/rename Mine")
        assert prompt(driver).border_subtitle == "Mine"
        await press(driver, "tab", "left", "k", "k", "b")
        assert texts(driver) == ["One", make_fake.PROSE]
        assert prompt(driver).border_subtitle == "Mine · fork"
        await enter(driver, "/continue")
        assert texts(driver)[2] == "Two"


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


async def test_a_title_is_shown_as_it_is_whatever_it_holds(tmp_path):
    title = r"[red]x[/b] a[0] \\[b] [/]"
    fill(tmp_path, title)
    async with kept_chat(tmp_path) as driver:
        assert f"last: {title}" in driver.shown
        await enter(driver, "/continue")
        assert title in driver.shown.splitlines()[-2]
        await press(driver, "ctrl+l", "d")
        assert f"{title} · u restores it" in driver.shown
