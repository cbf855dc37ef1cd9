"""Where letters go: keys while the transcript is read, which the footer says, else the prompt."""

import pytest
from textual.widgets import Static

from mlxspec_app.screens.chat.context_full import ContextFullScreen
from mlxspec_app.screens.dialogs import ContextScreen, GoToScreen
from mlxspec_app.screens.help import HelpScreen
from mlxspec_app.widgets.chat.key_footer import KeyFooter, shown_bindings
from mlxspec_app.widgets.chat.prompt import Prompt
from mlxspec_app.widgets.chat.token_message import TokenMessage
from mlxspec_app.widgets.chat.transcript import Transcript
from tests.support.app_driver import chat, rows
from tests.support.paths import ROOT


def shown_keys(driver):
    return [active.binding.description for active in shown_bindings(driver.app.screen)]


def bottom(driver):
    return rows(driver.app.screen)[-1]


def focused(driver):
    return type(driver.app.focused)


async def test_the_footer_says_that_letters_are_keys_and_which():
    async with chat(size=(140, 30)) as driver:
        await driver.say("hello")
        assert "READING" not in bottom(driver)
        await driver.press("tab")
        await driver.settle()
        assert bottom(driver).lstrip().startswith("READING")
        assert "Tab Write" in bottom(driver).replace("tab", "Tab")
        await driver.press("tab")
        await driver.settle()
        assert focused(driver) is Prompt
        assert "READING" not in bottom(driver)


async def test_a_letter_that_is_no_key_goes_to_the_prompt_with_all_that_follow():
    async with chat() as driver:
        await driver.say("hello")
        await driver.press("tab", *"who")
        assert driver.screen.query_one(Prompt).text == "who"
        assert focused(driver) is Prompt


async def test_a_letter_that_is_a_key_does_not():
    async with chat() as driver:
        await driver.say("hello")
        await driver.press("tab", "j", "l")
        assert driver.screen.query_one(Prompt).text == ""
        assert focused(driver) is Transcript


async def test_a_click_on_the_transcript_leaves_the_focus_in_the_prompt():
    async with chat() as driver:
        await driver.say("hello")
        await driver.pilot.click(TokenMessage, offset=(2, 0))
        await driver.press("x")
        assert driver.screen.query_one(Prompt).text == "x"


async def test_the_keys_of_the_screen_keep_their_order_whatever_has_the_focus():
    async with chat(size=(140, 30)) as driver:
        await driver.say("hello")
        typing = shown_keys(driver)
        await driver.press("tab")
        reading = shown_keys(driver)
        assert [name for name in reading if name in typing] == typing
        assert typing.index("Chats") < typing.index("Replay") < typing.index("Help")


async def test_the_palette_is_in_the_footer_in_the_help_and_in_the_readme():
    async with chat(size=(100, 120)) as driver:
        await driver.settle()
        assert "^p Commands" in bottom(driver)
        await driver.press("f1")
        assert "Ctrl+P search and run all commands" in " ".join(driver.shown.split())
    assert "Ctrl+P" in (ROOT / "README.md").read_text(encoding="utf-8")


async def test_g_goes_to_the_start_and_capital_g_to_the_end():
    async with chat(size=(80, 16)) as driver:
        for _ in range(3):
            await driver.say("Explain it.")
        transcript = driver.screen.query_one(Transcript)
        end = transcript.scroll_y
        await driver.press("tab", "g")
        await driver.settle()
        assert transcript.scroll_y <= 1 < end
        await driver.press("G")
        assert transcript.scroll_y == end


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda state: HelpScreen([]), "esc Close"),
        (ContextScreen, "esc Close"),
        (lambda state: GoToScreen(7), "esc Back"),
        (lambda state: ContextFullScreen(("drop", "new"), 99), "esc Cancel"),
    ],
)
async def test_the_keys_of_a_dialog_are_in_its_footer(make, words):
    async with chat() as driver:
        await driver.app.push_screen(make(driver.screen.state))
        await driver.pilot.pause()
        await driver.pilot.pause()
        assert len(driver.app.screen.query(KeyFooter)) == 1
        assert words in bottom(driver)
        assert not driver.app.screen.query_one(KeyFooter).query(Static).filter(".mode")
