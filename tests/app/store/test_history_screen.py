"""The list of chats: finding, opening, renaming, deleting and copying them."""

from mlxspec_app.screens.history import HistoryScreen
from mlxspec_app.store.errors import StoreError
from mlxspec_app.widgets.chat_list import ChatList
from tests.support.app_driver import texts
from tests.support.user_data_files import (
    appears,
    chat_list,
    enter,
    fill,
    kept_chat,
    press,
    rest,
    type_in,
)


def titles(driver):
    return [entry.title for entry in driver.app.screen.query_one(ChatList)._entries]


async def test_chats_are_listed_with_age_size_and_beginning(tmp_path):
    fill(tmp_path, "Tides", "The sky")
    async with chat_list(tmp_path, (60, 20)) as driver:
        assert titles(driver) == ["The sky", "Tides"]
        row = next(row for row in driver.shown.splitlines() if "The sky" in row)
        assert row.split() == ["\u276f", "The", "sky", "2", "messages", "·", "just", "now"]
        assert "An answer." in driver.shown
        await driver.pilot.pause()
        assert "esc Back" in " ".join(driver.shown.split())


async def test_an_empty_store_says_so(tmp_path):
    async with chat_list(tmp_path) as driver:
        assert "No chats yet: press n to start one." in driver.shown
        await press(driver, "r", "d", "f", "u", "enter")
        assert isinstance(driver.app.screen, HistoryScreen)


async def test_a_chat_is_opened_by_a_key_and_by_a_click_and_left_for_a_new_one(tmp_path):
    fill(tmp_path, "One", "Two", "Three")
    async with kept_chat(tmp_path) as driver:
        await press(driver, "ctrl+l", "down", "enter")
        assert texts(driver) == ["Two", "An answer."]
        await press(driver, "ctrl+l")
        await driver.pilot.click(ChatList, offset=(5, 4))
        await rest(driver)
        assert texts(driver) == ["One", "An answer."]
        await press(driver, "ctrl+l", "end", "d", "escape")  # deleting it begins a new one
        assert texts(driver) == []
        await press(driver, "ctrl+l", "enter")
        assert texts(driver) == ["Three", "An answer."]
        await press(driver, "ctrl+l", "n")
        assert texts(driver) == []


async def test_words_are_found_while_they_are_typed(tmp_path):
    fill(tmp_path, "Tides", "The sky", replies=("It is the moon.", "More?", "It is the air."))
    async with chat_list(tmp_path) as driver:
        await press(driver, "slash")
        await type_in(driver, "moon")
        assert sorted(titles(driver)) == ["The sky", "Tides"]
        assert "It is the moon." in driver.shown
        await type_in(driver, " sky")
        assert "No chat contains these words." in driver.shown
        await press(driver, "escape")
        assert len(titles(driver)) == 2


async def test_a_message_is_opened_where_it_was_found_on_whatever_branch(tmp_path):
    long = ("line\n\n" * 40, "And then?", "line\n\n" * 40)
    fill(tmp_path, "Tides", replies=long)
    async with kept_chat(tmp_path) as driver:
        await enter(driver, "/continue")
        await enter(driver, "/edit")
        await enter(driver, "Something else")
        assert texts(driver)[2] == "Something else"
        await press(driver, "ctrl+l", "slash")
        await driver.pilot.press(*"then", "enter")  # before the search has started
        await rest(driver)
        assert texts(driver)[2] == "And then?"
        assert "\u276f And then?" in driver.shown


async def test_a_chat_is_renamed_copied_deleted_and_had_back_in_place(tmp_path):
    fill(tmp_path, "One", "Two")
    async with chat_list(tmp_path) as driver:
        chats = driver.app.screen.query_one(ChatList)
        await press(driver, "down", "r")
        await type_in(driver, "again")
        await press(driver, "enter")
        assert titles(driver) == ["again", "Two"]
        assert chats.entry.title == "again"
        await press(driver, "r", "x", "escape")
        assert titles(driver) == ["again", "Two"]
        assert driver.app.focused is chats
        await press(driver, "f")
        assert titles(driver) == ["again · fork", "again", "Two"]
        await press(driver, "down", "d")
        assert titles(driver) == ["again · fork", "Two"]
        assert "u restores it" in driver.shown
        await press(driver, "d", "d")
        assert "No chats yet" in driver.shown
        await press(driver, "u", "u", "u")
        assert titles(driver) == ["again · fork", "again", "Two"]


async def test_a_long_list_is_whole(tmp_path):
    fill(tmp_path, *(f"Chat {number}" for number in range(250)))
    async with chat_list(tmp_path) as driver:
        assert titles(driver) == [f"Chat {number}" for number in reversed(range(250))]
        await press(driver, "end")
        assert driver.app.screen.query_one(ChatList).entry.title == "Chat 0"


async def test_a_store_that_cannot_be_used_says_why_unless_its_list_was_left(tmp_path):
    (tmp_path / "in the way").write_text("")
    async with kept_chat(tmp_path / "in the way") as driver:
        assert "chats cannot be saved" in driver.shown
        await enter(driver, "Hello")
        assert len(texts(driver)) == 2
        await press(driver, "ctrl+l")
        assert "The chats cannot be shown: chats cannot be saved" in driver.shown
        screen = driver.app.screen
        await screen.dismiss(None)
        screen._show(None)
        screen._show_instead("The chats cannot be shown")
        assert driver.app.screen is not screen


async def test_an_error_leaves_the_list_as_it_was(tmp_path):
    fill(tmp_path, "One")
    async with chat_list(tmp_path) as driver:

        def refuse(recorder):
            raise StoreError("the disk is gone")

        driver.app.screen._change(refuse)
        await rest(driver)
        await appears(driver, "the disk is gone")
        assert titles(driver) == ["One"]
