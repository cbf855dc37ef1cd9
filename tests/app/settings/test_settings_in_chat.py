"""What the user chose is what the app does."""

import pytest
from textual.app import App
from textual.color import Color

from mlxspec_app.conversation.events import SessionReady
from mlxspec_app.frames import frames_per_s
from mlxspec_app.screens.help import HelpScreen
from mlxspec_app.settings.file import Settings, read_settings
from mlxspec_app.themes import DAY
from mlxspec_app.user.paths import find_paths
from mlxspec_app.user_data import UserData, find_user_data
from tests.support.app_driver import chat, running
from tests.support.scripted_session import ScriptedSession


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.delenv("TEXTUAL_THEME", raising=False)
    return tmp_path


def user_data_with(folder, **settings):
    return UserData(find_paths(folder), Settings(**settings))


async def test_the_chat_begins_as_the_settings_say(folder):
    chosen = {"ink": "off", "reduced_motion": True, "frame_rate": 20, "keys": {"app.help": "f9"}}
    user_data = user_data_with(folder, theme="day", **chosen)
    async with chat(user_data=user_data) as driver:
        assert driver.app.theme == "day"
        assert driver.screen.ink.name == "off"
        assert driver.app.animation_level == "none"
        assert driver.screen.pacer._frames._interval == pytest.approx(1 / 20)
        await driver.press("f1")
        assert not isinstance(driver.app.screen, HelpScreen)
        await driver.press("f9")
        assert isinstance(driver.app.screen, HelpScreen)
        await driver.press("escape")
        assert ("F9, H", "what the colours, keys and commands mean") in driver.screen.active_keys()
        assert "f9 Help" in driver.shown


@pytest.mark.parametrize(("chosen", "ssh", "rate"), [(0, False, 30), (0, True, 15), (20, True, 20)])
def test_the_frame_rate_suits_the_connection_or_is_as_chosen(monkeypatch, chosen, ssh, rate):
    monkeypatch.delenv("SSH_CONNECTION", raising=False)
    if ssh:
        monkeypatch.setenv("SSH_CONNECTION", "yes")
    assert frames_per_s(Settings(frame_rate=chosen)) == rate


async def test_a_theme_that_is_asked_for_comes_before_the_settings(folder):
    async with chat(user_data=user_data_with(folder, theme="day"), theme="mint") as driver:
        assert driver.app.theme == "mint"
        driver.app.change("theme", "day")
        assert driver.app.theme == "day"


async def test_a_stored_theme_gives_way_on_sixteen_colours_until_one_is_chosen(folder, monkeypatch):
    monkeypatch.setenv("COLORTERM", "")
    monkeypatch.setenv("TERM", "xterm")
    async with chat(user_data=user_data_with(folder, theme="day")) as driver:
        assert driver.app.theme == "terminal-light"
        assert driver.app.settings.theme == "day"
        driver.app.change("theme", "dusk")
        assert driver.app.theme == "dusk"


async def test_a_theme_of_ours_named_by_the_environment_has_its_colours(folder, monkeypatch):
    monkeypatch.setenv("TEXTUAL_THEME", "day")
    monkeypatch.setattr(App.__dict__["theme"], "_default", "day")  # Textual reads it when imported
    async with chat(user_data=user_data_with(folder, theme="dusk")) as driver:
        assert driver.app.theme == "day"  # the environment comes before the settings
        assert driver.screen.styles.background == Color.parse(DAY.background)
        assert driver.app.theme_variables["footer-background"] == DAY.surface


async def test_a_change_shows_at_once_and_is_kept(folder):
    user_data = user_data_with(folder)
    async with chat(user_data=user_data) as driver:
        for name, value in (("theme", "day"), ("ink", "drafter"), ("frame_rate", 10)):
            driver.app.change(name, value)
        driver.app.change("keys.app.help", "f9")
        assert driver.app.theme == "day"
        assert driver.screen.ink.name == "drafter"
        assert driver.screen.pacer._frames._interval == pytest.approx(0.1)
        await driver.press("f9")
        assert isinstance(driver.app.screen, HelpScreen)
        await driver.app.workers.wait_for_complete()
    kept = read_settings(user_data.paths.settings).settings
    assert kept == Settings("day", "drafter", frame_rate=10, keys={"app.help": "f9"})


def test_a_change_that_was_not_written_yet_is_written_at_the_end(folder):
    user_data = user_data_with(folder)
    user_data.change("ink", "off")
    user_data.change("ink", "drafter")
    user_data.close()
    assert read_settings(user_data.paths.settings).settings.ink == "drafter"


async def test_what_is_wrong_with_the_file_is_told_and_a_change_holds(folder):
    path = find_paths(folder).settings
    path.write_text('ink = "red"\n[keys]\n"chat.stop" = "f2"\n', encoding="utf-8")
    async with running(ScriptedSession(SessionReady()), user_data=find_user_data(folder)) as driver:
        assert "settings.toml: ink is 'red'" in driver.shown
        assert "f2 is view.ink in the chat already" in driver.shown
        path.write_text("ink = ", encoding="utf-8")
        driver.app.change("ink", "off")
        await driver.app.workers.wait_for_complete()
        await driver.settle()
        told = [note.message for note in driver.app._notifications]
        assert any("is not TOML, so nothing was changed" in message for message in told)
        assert driver.screen.ink.name == "off"
