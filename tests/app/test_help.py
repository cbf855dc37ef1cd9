"""The help page: a long meaning stands beside its name, on as many lines as it takes."""

import pytest
from textual.content import Content
from textual.widgets import Input

from mlxspec_app.commands import COMMANDS
from mlxspec_app.screens.help import HelpPage, HelpScreen, Row, help_rows
from tests.support.app_driver import chat

KEYS = [("Ctrl+R", "retry the last reply"), ("Ctrl+N", "start a new chat")]


def test_what_does_not_fit_stands_below_the_beginning_of_its_meaning():
    said = "copy the selected text; without a selection end the reply, else quit"
    row = Row(Content(f"Ctrl+C    {said}"), indent=10)
    assert [line.plain.rstrip() for line in row.wrapped(36)] == [
        "Ctrl+C    copy the selected text;",
        "          without a selection end",
        "          the reply, else quit",
    ]
    assert [line.plain for line in Row(Content("short")).wrapped(36)] == ["short"]
    assert [line.plain for line in Row(Content("")).wrapped(36)] == [""]


def found(sought):
    return [row.content.plain for row in help_rows(KEYS, COMMANDS, sought)]


@pytest.mark.parametrize(
    ("sought", "headings", "row"),
    [
        ("ctrl+n", ["Keys"], "Ctrl+N           start a new chat"),
        ("Previous CHAT", ["Commands"], "/continue"),
        ("frame_rate", ["Settings (F5)"], "frame_rate"),
        ("retry last", ["Keys", "Commands"], "/retry [SEED]"),
        ("acceptance rate", ["Figures"], "% accepted"),
    ],
)
def test_what_is_typed_filters_keys_commands_settings_and_figures(sought, headings, row):
    rows, titles = found(sought), {"Keys", "Commands", "Settings (F5)", "Figures", "Views (F2)"}
    assert [row for row in rows if row in titles] == headings
    assert any(line.startswith(row) for line in rows)
    assert len(rows) < 8


def test_what_is_nowhere_is_said_and_without_words_all_is_there():
    assert found("xyzzy") == ["nothing here has 'xyzzy' in it"]
    assert set(found("retry")) < set(found(""))
    assert "Settings (F5)" not in [row.content.plain for row in help_rows(KEYS)]


async def test_letters_go_to_the_search_and_escape_closes_the_page():
    async with chat() as driver:
        await driver.press("f1")
        screen = driver.app.screen
        await driver.press(*"quit po")
        assert screen.query_one(Input).value == "quit po"
        await driver.press(*["backspace"] * 3)
        assert "/quit" in str(screen.query_one(HelpPage).render())
        assert "/theme" not in str(screen.query_one(HelpPage).render())
        await driver.press("escape")
        assert not isinstance(driver.app.screen, HelpScreen)
