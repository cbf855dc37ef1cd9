"""Paging keys that a terminal keeps to itself, and function keys, are never the only way."""

from contextlib import asynccontextmanager

import pytest
from textual.binding import Binding
from textual.widgets import Static

from mlxspec_app.commands import COMMANDS
from mlxspec_app.screens.dialogs import FiguresScreen
from mlxspec_app.screens.help import HelpScreen
from mlxspec_app.screens.settings import SettingsScreen
from mlxspec_app.settings.keys.tables import CHAT, LIST, RACE, REPLAY, TRANSCRIPT
from mlxspec_app.widgets.chat.prompt import Prompt
from mlxspec_app.widgets.chat.transcript import Transcript
from mlxspec_app.widgets.chat_list import ChatList
from mlxspec_app.widgets.draft.tree_panel import TreePanel
from mlxspec_app.widgets.stats_panel import StatsPanel
from tests.support.app_driver import chat, replay, rows
from tests.support.race_driver import racing
from tests.support.user_data_files import chat_list, fill, press
from tests.traces import make_fake

LOST = ("pageup", "pagedown", "home", "end", "ctrl+home", "ctrl+end", *(f"f{n}" for n in range(25)))
# What a command does, and the key that does it: written down here, for their actions differ.
COMMAND_OF = {
    "f1": "help",
    "f2": "view",
    "f3": "tree",
    "f4": "stats",
    "f5": "settings",
    "f6": "replay",
    "pageup": "up",
    "pagedown": "down",
    "ctrl+end": "follow",
}


def lost(bindings):
    """The bindings that have none but keys which may be lost."""
    return [binding for binding in bindings if set(binding.key.split(",")) <= set(LOST)]


def does(binding):
    return binding.action.removeprefix("screen.")


@pytest.mark.parametrize("table", [CHAT, TRANSCRIPT], ids=["chat", "transcript"])
def test_in_the_chat_a_command_does_what_such_a_key_does(table):
    names = {command.name for command in COMMANDS}
    for binding in lost(table):
        assert COMMAND_OF[binding.key] in names, binding.key


@pytest.mark.parametrize(
    "table", [TRANSCRIPT, REPLAY, RACE, LIST], ids=["transcript", "replay", "race", "list"]
)
def test_where_nothing_is_typed_a_letter_does_what_such_a_key_does(table):
    others = {does(binding) for binding in table if binding not in lost(table)}
    assert {does(binding) for binding in lost(table)} <= others


def test_in_the_transcript_every_such_key_of_the_chat_has_a_letter():
    letters = {does(binding) for binding in TRANSCRIPT if binding not in lost(TRANSCRIPT)}
    assert {does(b) for b in lost(CHAT) if b.key != "f6"} <= letters


def test_the_measure_itself_finds_a_key_that_may_be_lost():
    assert lost([Binding("f7", "a"), Binding("home", "b"), Binding("end,z", "c")])[0].key == "f7"
    assert len(lost([Binding("pageup", "a"), Binding("x", "b"), Binding("pagedown,q", "c")])) == 1


@asynccontextmanager
async def long_chat():
    async with chat(size=(100, 20)) as driver:
        for _ in range(5):
            await driver.say("Explain it.")
        yield driver


def place(driver):
    return driver.screen.query_one(Transcript).scroll_y


async def test_commands_and_letters_read_back_and_on_and_are_typed_in_the_prompt():
    async with long_chat() as driver:
        end = place(driver)

        async def walked(act, steps):
            seen = []
            for step in steps:
                await act(step)
                seen.append(place(driver))
            return seen

        for act, steps in (
            (driver.say, ("/up", "/up", "/down", "/follow")),
            (driver.press, ("p", "p", "o", "G")),
        ):
            first, second, third, last = await walked(act, steps)
            assert end > first == third > second
            assert last == end
            assert driver.screen.query_one(Transcript).is_following
            await driver.press("tab")  # to the transcript, where letters are keys
        await driver.press("tab")
        await change_views(driver)
        await driver.press("tab")
        end = place(driver)
        assert driver.screen.state.messages[-1].role != "user"
        await driver.press(*"poGtsSi", "question_mark")
        assert driver.screen.query_one(Prompt).text == "poGtsSi?"
        assert place(driver) == end


async def change_views(driver):
    """Press the letters that change what is seen, and check each."""
    view = driver.screen.view
    await driver.press("i")
    assert driver.screen.view != view
    for key, panel in (("t", TreePanel), ("s", StatsPanel)):
        was_shown = driver.screen.query_one(panel).has_class("-shown")
        await driver.press(key)
        assert driver.screen.query_one(panel).has_class("-shown") != was_shown
    await driver.press("S")
    assert isinstance(driver.app.screen, SettingsScreen)
    await driver.press("escape", "question_mark")
    assert isinstance(driver.app.screen, FiguresScreen)
    await driver.press("question_mark")
    assert isinstance(driver.app.screen, HelpScreen)
    await driver.press("escape")
    assert not isinstance(driver.app.screen, HelpScreen)


async def test_letters_do_in_a_replay_what_function_keys_do():
    async with replay(make_fake.tree()) as driver:
        await driver.wait(1.0)
        await driver.press("space")
        await change_views(driver)


async def test_a_replay_is_read_back_and_followed_by_letters():
    async with replay(make_fake.chat(), size=(60, 18)) as driver:
        await driver.press("space", "greater_than_sign", "less_than_sign")
        assert driver.session.position == 0
        await driver.press("greater_than_sign")
        assert driver.session.position == len(driver.session.timeline)
        end = place(driver)
        await driver.press("p")
        assert place(driver) < end
        await driver.press("G")
        assert place(driver) == end


async def test_a_race_has_letters_too():
    async with racing(size=(60, 18)) as driver:
        screen = driver.pilot.app.screen
        await driver.press("greater_than_sign", "question_mark", "question_mark")
        assert isinstance(driver.pilot.app.screen, HelpScreen)
        await driver.press("escape")
        view = screen.view
        await driver.press("i", "p")
        assert screen.view != view
        places = [transcript.scroll_y for transcript in screen.query(Transcript)]
        assert places != [transcript.max_scroll_y for transcript in screen.query(Transcript)]
        await driver.press("G")
        for transcript in screen.query(Transcript):
            assert transcript.scroll_y == transcript.max_scroll_y


async def test_the_list_of_chats_is_paged_by_letters(tmp_path):
    fill(tmp_path, *(f"Chat {number}" for number in range(30)))
    async with chat_list(tmp_path, (60, 20)) as driver:
        pointed = driver.app.screen.query_one(ChatList)
        seen = []
        for key in ("o", "G", "p", "g"):
            await press(driver, key)
            seen.append(pointed._pointed)
        assert 0 < seen[0] < seen[2] < seen[1] == 29
        assert seen[3] == 0


async def test_help_is_paged_and_names_both_ways():
    async with chat(size=(100, 24)) as driver:
        await driver.press("f1")
        shown = []
        for key in ("pagedown", "pagedown", "pageup"):
            await driver.press(key)
            shown.append("\n".join(rows(driver.app.screen)))
        assert shown[0] == shown[2] != shown[1]
        for _ in range(4):
            await driver.press("pagedown")
            shown.append("\n".join(rows(driver.app.screen)))
        page = "\n".join(shown)
        for keys in ("F1, H", "PgUp, p", "PgDn, o", "Ctrl+End, G"):
            assert keys in page


async def test_the_note_of_unseen_text_names_a_way_that_is_there():
    async with chat(speed=1.0, size=(60, 16), view="xray") as driver:
        await driver.say("Explain it.")
        await driver.wait(0.6)
        await driver.say("/up")
        await driver.wait(0.3)
        assert "new tokens · Ctrl+End or /follow" in driver.shown
    async with replay(make_fake.chat(), size=(60, 18)) as driver:
        driver.screen.panels.show_unseen(5)  # until the next redraw
        assert "5 new tokens · Ctrl+End or G" in driver.screen.query_one("#pill", Static).content
