"""Ctrl+C, Ctrl+D and Ctrl+Z in a chat: what each ends, and that no typed text is lost."""

import os
import stat
import time

from mlxspec.trace.events import (
    GenerationFinished,
    GenerationStarted,
    PrefillProgress,
    TurnStarted,
)
from mlxspec_app.app import MlxspecApp
from mlxspec_app.conversation.events import SessionReady
from mlxspec_app.conversation.orders import Say
from mlxspec_app.screens.chat import leaving
from mlxspec_app.screens.chat.leaving import take_text
from mlxspec_app.user_data import find_user_data
from mlxspec_app.widgets.chat.prompt import Prompt
from tests.support.app_driver import chat, running
from tests.support.scripted_session import ScriptedSession
from tests.support.user_data_files import PATIENCE_S, fill


def typed(driver):
    return driver.screen.query_one(Prompt).text


async def test_ctrl_c_stops_then_clears_then_asks_then_quits():
    async with chat(speed=1.0) as driver:
        await driver.say("Explain it.")
        await driver.wait(0.3)
        await driver.press(*"next")
        await driver.press("ctrl+c")
        await driver.wait(1.0)
        assert driver.screen.state.reply.reason == "cancelled"
        assert typed(driver) == "next"
        await driver.press("ctrl+c")
        assert typed(driver) == ""
        assert driver.app.return_code is None
        await driver.press("ctrl+c")
        assert "Ctrl+C again quits" in driver.shown
        assert driver.app.return_code is None
        await driver.pilot.press("ctrl+c")
        assert driver.app.return_code == 0


async def test_a_second_press_that_comes_late_or_after_typing_does_not_quit(monkeypatch):
    monkeypatch.setattr(leaving, "QUIT_S", 0.01)
    async with chat() as driver:
        await driver.press("ctrl+c")
        await driver.pilot.pause(0.05)
        await driver.press("ctrl+c")
        assert driver.app.return_code is None
        await driver.press("ctrl+c", "x", "backspace", "ctrl+c")
        assert driver.app.return_code is None


async def test_ctrl_c_in_the_replay_of_a_chat_goes_back():
    async with chat() as driver:
        await driver.say("hello")
        await driver.press("f6", "ctrl+c")
        assert driver.screen.query(Prompt)
        assert driver.app.return_code is None


async def test_no_key_loses_a_text_and_ctrl_d_quits_without_one():
    async with chat() as driver:
        await driver.press(*"half", "ctrl+c", "up")
        assert typed(driver) == "half"
        await driver.press("f1", "ctrl+c")  # in a dialog it goes back
        await driver.press("ctrl+w")
        assert typed(driver) == ""
        await driver.press("ctrl+underscore")
        assert typed(driver) == "half"
        await driver.press("ctrl+w", "a", "b", "home", "ctrl+d")
        assert typed(driver) == "b"
        await driver.press("ctrl+d")
        assert typed(driver) == ""
        assert driver.app.return_code is None
        await driver.pilot.press("ctrl+d")
        assert driver.app.return_code == 0


async def test_an_unsent_text_and_what_waits_are_in_the_prompt_at_the_next_start(tmp_path):
    fill(tmp_path, "One")
    user_data = find_user_data(tmp_path)
    async with running(ScriptedSession(), user_data=user_data) as driver:
        await driver.say("queued")
        await driver.press(*"half a", "ctrl+q")
    file = tmp_path / "unsent.txt"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    async with running(ScriptedSession(SessionReady()), user_data=user_data) as driver:
        assert typed(driver) == "queued\nhalf a"
        await driver.press("enter")
        assert driver.session.orders[-1] == Say("queued\nhalf a")
    assert not file.exists()


async def test_an_unsent_text_is_kept_while_it_is_typed(tmp_path, monkeypatch):
    monkeypatch.setattr(leaving, "_WRITE_EVERY_S", 0.01)
    user_data, file = find_user_data(tmp_path), tmp_path / "unsent.txt"
    async with running(ScriptedSession(SessionReady()), user_data=user_data) as driver:
        await driver.press(*"half")
        deadline = time.monotonic() + PATIENCE_S
        while not (file.exists() and file.read_text() == "half"):
            assert time.monotonic() < deadline
            await driver.pilot.pause(0.01)


def test_an_unsent_text_that_cannot_be_read_is_no_error(tmp_path):
    (tmp_path / "unsent.txt").write_bytes(b"\xff\xfe")
    assert take_text(tmp_path / "unsent.txt") == ""
    assert take_text(tmp_path / "none" / "unsent.txt") == ""


async def test_ctrl_z_is_refused_gently_where_nothing_can_bring_the_app_back(monkeypatch):
    killed = []
    monkeypatch.setattr(os, "kill", lambda *signal: killed.append(signal))
    async with chat() as driver:
        await driver.press("x", "ctrl+z")
        assert "the app cannot be suspended here" in driver.shown
        monkeypatch.setattr(type(driver.app._driver), "can_suspend", True)
        monkeypatch.setattr(os, "getpgrp", lambda: os.getsid(0))
        await driver.press("ctrl+z")
        assert "no shell started this app" in driver.shown
        assert typed(driver) == "x"
    assert killed == []


async def test_ctrl_z_stops_the_process_where_a_shell_waits(monkeypatch):
    stopped = []
    monkeypatch.setattr("textual.app.App.action_suspend_process", lambda app: stopped.append(app))
    monkeypatch.setattr(os, "getpgrp", lambda: os.getsid(0) + 1)
    async with chat() as driver:
        monkeypatch.setattr(type(driver.app._driver), "can_suspend", True)
        await driver.press("ctrl+z")
        assert stopped == [driver.app]
    assert isinstance(driver.app, MlxspecApp)


async def test_a_stop_while_the_prompt_is_read_is_answered_at_once():
    reading = [TurnStarted("user", "x"), GenerationStarted("m", "none"), PrefillProgress(0.1, 1, 9)]
    async with running(ScriptedSession(SessionReady(), *reading)) as driver:
        assert "stopping" not in driver.shown
        await driver.press("escape")
        assert "stopping as soon as this part of the prompt is read" in driver.shown
        driver.session.news += [GenerationFinished(0.2, "cancelled", "")]
        await driver.settle()
        assert "stopping" not in driver.shown
        assert "stopped" in driver.shown
        driver.session.news += reading
        await driver.settle()
        assert "stopping" not in driver.shown
