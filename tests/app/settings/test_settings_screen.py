"""The settings screen: values changed by keys, refused in words, kept in the file."""

import pytest
from textual.widgets import Input

from mlxspec_app.conversation.events import SessionReady
from mlxspec_app.screens.chat.screen import ChatScreen
from mlxspec_app.screens.settings import SettingList, SettingsScreen
from mlxspec_app.settings.file import Settings, read_settings
from mlxspec_app.settings.rules import RULES
from mlxspec_app.user.paths import find_paths
from mlxspec_app.user_data import UserData
from tests.support.app_driver import running
from tests.support.scripted_session import ScriptedSession


@pytest.fixture
def user_data(tmp_path, monkeypatch):
    monkeypatch.delenv("TEXTUAL_THEME", raising=False)
    return UserData(find_paths(tmp_path))


def opened(user_data, **options):
    return running(ScriptedSession(SessionReady()), user_data=user_data, **options)


async def go_to(driver, name):
    settings = driver.app.screen.query_one(SettingList)
    settings.highlighted = settings.get_option_index(name)
    await driver.settle()


async def kept(driver, user_data):
    await driver.app.workers.wait_for_complete()
    return read_settings(user_data.paths.settings).settings


def test_every_setting_has_its_words():
    assert all(rule.meaning and rule.allowed for rule in RULES.values())


async def test_a_setting_shows_its_value_what_is_allowed_and_where_it_is_kept(user_data):
    async with opened(user_data, size=(140, 45)) as driver:
        await driver.say("/theme day")
        await driver.say("/ink off")  # which is not kept
        assert await kept(driver, user_data) == Settings("day")
        await driver.press("f5")
        await go_to(driver, "sampling.top_p")
        assert "settings.toml" in driver.shown
        assert "next reply: temp 0.0 · k 15 · seed 7" in driver.shown
        assert "at least 0 and at most 1; default the model's, else 0.9" in driver.shown
        assert "Five words were not drafted" in driver.shown
        await driver.press("escape")
        assert isinstance(driver.app.screen, ChatScreen)


async def test_left_and_right_go_through_what_a_setting_can_be(user_data):
    async with opened(user_data) as driver:
        await driver.say("/settings")
        await driver.press("right")
        assert driver.app.theme == "day"
        await driver.press("left", "down", "right", "right")
        assert (driver.app.theme, driver.app.settings.ink) == ("mint", "confidence")
        await go_to(driver, "reduced_motion")
        await driver.press("enter")
        assert driver.app.animation_level == "none"
        assert await kept(driver, user_data) == Settings("mint", "confidence", reduced_motion=True)
        await driver.press("escape")
        assert driver.screen.ink.name == "confidence"


async def test_a_number_is_typed_and_one_that_is_not_allowed_is_refused(user_data):
    user_data.settings = Settings(frame_rate=20)
    async with opened(user_data, size=(60, 20)) as driver:
        await driver.press("f5")
        await go_to(driver, "sampling.top_p")
        await driver.press("enter")
        driver.app.screen.query_one(Input).value = "2"
        await driver.press("enter")
        assert "sampling.top_p is '2'; allowed is at least 0" in driver.shown
        driver.app.screen.query_one(Input).value = "0.5"
        await driver.press("enter")
        assert (await kept(driver, user_data)).sampling == {"top_p": 0.5}
        assert ("adjust", "top_p", "0.5") in driver.session.orders
        await go_to(driver, "frame_rate")
        await driver.press("enter", "9", "escape")  # leaves the field first
        assert isinstance(driver.app.screen, SettingsScreen)
        assert driver.app.settings.frame_rate == 20
        await driver.press("delete")
        assert driver.app.settings.frame_rate == Settings().frame_rate


async def test_a_key_is_chosen_by_pressing_it_and_one_that_is_taken_is_refused(user_data):
    async with opened(user_data) as driver:
        await driver.press("f5")
        await go_to(driver, "keys.view.tree")
        await driver.press("enter", "f2")
        assert "f2 is view.ink in the chat already" in driver.shown
        await driver.press("enter", "escape")
        assert driver.app.settings.keys == {}
        await driver.press("enter")
        assert "Press the key for: the last draft as a tree" in driver.shown
        await driver.press("f9")
        assert (await kept(driver, user_data)).keys == {"view.tree": "f9"}
        assert "F9" in driver.shown


async def test_what_is_unset_shows_what_it_is_in_this_chat_and_from_where(user_data):
    async with opened(user_data) as driver:
        session, reads = driver.screen.session, "none; the model's template reads enable_thinking"
        session.settings.adjustable = lambda: {"temp": "0.6", "top_p": "0.5"}
        session.settings.origins = lambda: {"temp": "the model's own", "template": reads}
        await driver.press("f5")
        await go_to(driver, "sampling.temperature")
        assert "0.6, the model's own" in driver.shown
        await driver.press("enter")
        driver.app.screen.query_one(Input).value = "0"
        await driver.press("enter")
        assert "0.6, the model's own" not in driver.shown
        assert session.orders[-1] == ("adjust", "temp", "0.0")
        await go_to(driver, "sampling.chat_template_args")
        assert "none; the model's template reads" in driver.shown
        await driver.press("right")  # goes through the switch of reasoning
        assert "enable_thinking=false asks for no reasoning" in driver.shown
        chosen = {"temperature": 0.0, "chat_template_args": "enable_thinking=false"}
        assert (await kept(driver, user_data)).sampling == chosen
        assert session.orders[-2:] == [
            ("adjust", "template", ""),
            ("adjust", "template", "enable_thinking=false"),
        ]
        await driver.press("left")
        assert (await kept(driver, user_data)).sampling == {"temperature": 0.0}
