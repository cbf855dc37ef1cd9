"""Where letters go: keys while the transcript is read, which the footer says, else the prompt."""

from mlxspec_app.screens.chat.context_full import ContextFullScreen
from mlxspec_app.screens.dialogs import ContextScreen, GoToScreen
from mlxspec_app.screens.help import HelpScreen
from mlxspec_app.widgets.chat.key_footer import KeyFooter, shown_bindings
from mlxspec_app.widgets.chat.prompt import Prompt
from mlxspec_app.widgets.chat.token_message import TokenMessage
from mlxspec_app.widgets.chat.transcript import Transcript
from tests.support.app_driver import chat, rows


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
        typing = shown_keys(driver)
        assert typing.index("Chats") < typing.index("Replay") < typing.index("Help")
        await driver.press("tab")
        await driver.settle()
        assert [name for name in shown_keys(driver) if name in typing] == typing
        assert bottom(driver).lstrip().startswith("READING")
        assert "Tab Write" in bottom(driver).replace("tab", "Tab")
        await driver.press("tab")
        await driver.settle()
        assert focused(driver) is Prompt
        assert "READING" not in bottom(driver)


async def test_a_letter_that_is_no_key_goes_to_the_prompt_with_all_that_follow():
    async with chat() as driver:
        await driver.say("hello")
        await driver.press("tab", "j", "l")
        assert focused(driver) is Transcript
        await driver.press(*"who")
        assert driver.screen.query_one(Prompt).text == "who"
        assert focused(driver) is Prompt
        await driver.pilot.click(TokenMessage, offset=(2, 0))
        await driver.press("x")
        assert driver.screen.query_one(Prompt).text == "whox"


async def test_the_palette_is_in_the_footer_and_in_the_help():
    async with chat(size=(100, 120)) as driver:
        assert "^p Commands" in bottom(driver)
        await driver.press("f1")
        assert "Ctrl+P search and run all commands" in " ".join(driver.shown.split())


async def test_the_keys_of_a_dialog_are_in_its_footer():
    async with chat() as driver:
        for dialog, words in (
            (HelpScreen([]), "esc Close"),
            (ContextScreen(driver.screen.state), "esc Close"),
            (GoToScreen(7), "esc Back"),
            (ContextFullScreen(("drop", "new"), 99), "esc Cancel"),
        ):
            await driver.app.push_screen(dialog)
            await driver.settle()
            assert len(driver.app.screen.query(KeyFooter)) == 1
            assert words in bottom(driver)
            assert "READING" not in bottom(driver)


async def test_enter_unfolds_a_long_message_that_is_pointed_at():
    text = "\n".join(f"line {n}" for n in range(80))
    async with chat(size=(80, 30)) as driver:
        await driver.say(text)
        message = next(iter(driver.screen.query(TokenMessage)))
        assert "[74 more lines]" in message.text
        await driver.press("tab", "k", "k", "enter")
        assert message.text == text == driver.screen.state.messages[0].text
        await driver.press("enter")
        assert "[74 more lines]" in message.text
