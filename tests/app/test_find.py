"""The search in the open chat: what is found, the way through the hits, and the way out."""

import pytest
from textual.widgets import Input

from mlxspec_app.conversation.messages import Message, Span, find_words
from mlxspec_app.widgets.chat.find_bar import FindBar
from mlxspec_app.widgets.chat.prompt import Prompt
from mlxspec_app.widgets.chat.transcript import Transcript
from tests.support.app_driver import chat


def test_words_are_found_across_tokens_whatever_their_capitals():
    one = Message("user", [Span("The m"), Span("odel\nA MODEL")])
    hits = find_words([one], "model")
    assert [tuple(hit)[1:] for hit in hits] == [(0, 4, 9), (1, 2, 7)]
    assert find_words([one], "mod.l") == []
    assert find_words([one], " ") == []


def selected(driver):
    return driver.screen.get_selected_text()


async def test_the_newest_hit_comes_first_and_the_keys_go_round():
    async with chat() as driver:
        await driver.say("Say apple, then apple.")
        await driver.press(*"typed", "ctrl+f", *"zzz", "enter")
        assert "no match in this chat" in driver.shown
        await driver.press(*["backspace"] * 3, *"apple")
        assert "2 of 2" in driver.shown
        assert selected(driver) == "apple"
        for key, number in (("enter", 1), ("up", 2), ("down", 1), ("shift+enter", 2)):
            await driver.press(key)
            assert f"{number} of 2" in driver.shown
        await driver.press("escape")
        assert not driver.screen.query_one(FindBar).is_open
        assert selected(driver) is None
        assert driver.screen.query_one(Prompt).text == "typed"
        assert driver.screen.query_one(Prompt).has_focus


async def test_a_hit_far_above_is_scrolled_to_and_found_in_exact_text_too():
    async with chat(size=(80, 16)) as driver:
        await driver.say("A pineapple.")
        for _ in range(3):
            await driver.say("Explain it.")
        assert "pineapple" not in driver.shown
        await driver.say("/find pineapple")
        assert "A pineapple." in driver.shown
        assert not driver.screen.query_one(Transcript).is_following
        await driver.press("escape")
        await driver.say("/markdown")
        await driver.app.workers.wait_for_complete()
        await driver.press("ctrl+f", *["backspace"] * 9, *"speculative")
        assert selected(driver).lower() == "speculative"


@pytest.mark.parametrize("key", ["ctrl+c", "escape"])
async def test_the_search_ends_and_its_words_are_there_the_next_time(key):
    async with chat() as driver:
        await driver.say("Say apple.")
        await driver.press("ctrl+f", *"apple", key)
        assert not driver.screen.query_one(FindBar).is_open
        await driver.press("ctrl+f")
        assert driver.screen.query_one(Input).value == "apple"
        assert "1 of 1" in driver.shown
        assert driver.app.return_code is None
