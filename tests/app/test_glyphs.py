"""In ASCII every sign of the app is replaced, and no word of the user or the model is."""

import ast
import io
import sys
from pathlib import Path

import pytest
from rich.cells import cell_len

import mlxspec_app
from mlxspec.trace.file import read_trace
from mlxspec_app.app import MlxspecApp
from mlxspec_app.screens.chat.screen import ChatScreen
from mlxspec_app.text.glyphs import terminal_takes_unicode, to_ascii
from mlxspec_app.widgets.chat.prompt import Prompt
from mlxspec_app.widgets.chat.token_message import TokenMessage
from tests.support.app_driver import chat, replay, rows
from tests.support.paths import TRACES
from tests.traces import make_fake

APP = Path(mlxspec_app.__file__).parent
NOT_DRAWN = ("export", "store", "text/safe_text.py", "text/glyphs.py")
"""Exports keep Unicode, the store searches it, and the stand-ins are part of a text."""


def drawn_literals():
    """Yield every string of the app that may be drawn, with the file it is in."""
    for path in APP.rglob("*.py"):
        if path.relative_to(APP).as_posix().startswith(NOT_DRAWN):
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"))
        notes = {id(n.value) for n in ast.walk(tree) if isinstance(n, ast.Expr)}
        strings = (node for node in ast.walk(tree) if isinstance(node, ast.Constant))
        for node in strings:
            if isinstance(node.value, str) and id(node) not in notes:
                yield path.name, node.value


async def in_ascii(driver):
    driver.app.change("ascii_glyphs", True)
    await driver.settle()


def test_every_sign_in_the_code_has_a_twin():
    missing = {
        (name, sign)
        for name, text in drawn_literals()
        for sign in text
        if not to_ascii(sign).isascii()
    }
    assert not missing, f"give these a twin in mlxspec_app/text/glyphs.py: {sorted(missing)}"


def test_the_check_of_the_code_finds_signs():
    assert {"✓", "━", "█", "…"} <= {sign for _, text in drawn_literals() for sign in text}


def test_a_twin_takes_as_many_cells_as_its_sign():
    signs = [chr(code) for code in range(0x80, 0x2800)]
    replaced = [sign for sign in signs if to_ascii(sign) != sign]
    assert len(replaced) > 200
    assert not [sign for sign in replaced if (cell_len(sign), len(to_ascii(sign))) != (1, 1)]


def test_verdicts_keep_five_different_signs():
    assert to_ascii("✓✗→✚·") == "+x>*."


def test_bars_keep_growing():
    assert to_ascii("▏▌█") == "|=#"
    assert len(set(to_ascii("▁▂▃▄▅▆▇█"))) == 8


def test_words_are_not_translated():
    assert to_ascii("naïve 日本語 🙂 Ω") == "naïve 日本語 🙂 Ω"


async def test_a_chat_is_drawn_in_ascii_alone():
    async with chat(read_trace(TRACES / "tree.jsonl"), size=(140, 45)) as driver:
        await in_ascii(driver)
        assert driver.shown.isascii()  # the first page
        await driver.say("hello")
        for keys in (["f3", "f2"], ["tab", "left"], ["f1"]):
            await driver.press(*keys)
            assert driver.shown.isascii(), keys


async def test_a_replay_is_drawn_in_ascii_alone():
    async with replay(read_trace(TRACES / "tree.jsonl")) as driver:
        await in_ascii(driver)
        await driver.wait(0.6)
        await driver.press("f3", "space", "right", "g")
        assert driver.shown.isascii()


async def test_the_words_of_user_and_model_stay_what_they_are():
    said = list(make_fake.FakeEngine().reply("why", "one ✓ two → three · four █"))
    async with chat(said) as driver:
        await in_ascii(driver)
        driver.screen.query_one(Prompt).text = "is → right … ✓"
        await driver.settle()
        assert "is → right … ✓" in driver.shown
        await driver.press("enter")
        assert "> is → right … ✓" in driver.shown
        assert "one ✓ two → three · four █" in driver.shown


async def test_signs_can_be_changed_while_the_app_runs():
    async with chat() as driver:
        await driver.say("hello")
        before, wide = driver.shown, [cell_len(row) for row in rows(driver.app.screen)]
        await in_ascii(driver)
        assert driver.shown.isascii()
        assert [cell_len(row) for row in rows(driver.app.screen)] == wide
        driver.app.ascii_glyphs = False
        await driver.settle()
        assert driver.shown == before


@pytest.mark.parametrize(
    ("encoding", "takes"),
    [("utf-8", True), ("UTF8", True), ("utf_16", True), ("ascii", False), ("iso8859-1", False)],
)
def test_a_terminal_that_cannot_take_unicode_gets_ascii_unasked(monkeypatch, encoding, takes):
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    monkeypatch.setattr(sys, "__stderr__", stream)
    assert terminal_takes_unicode() == takes
    assert MlxspecApp(lambda: ChatScreen(None)).draws_ascii != takes


def test_a_message_keeps_the_filters_that_are_about_colour(monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    app = MlxspecApp(lambda: ChatScreen(None))
    app.set_reactive(MlxspecApp.ascii_glyphs, True)
    with app._context():
        kept = TokenMessage().get_line_filters()
    assert [type(item).__name__ for item in app.get_line_filters()][-1] == "AsciiFilter"
    assert list(kept) == list(app.get_line_filters())[:-1]
