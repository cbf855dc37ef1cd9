"""The editor of the user: it gets the text of the prompt, and the prompt gets what it wrote."""

import sys
from contextlib import nullcontext

import pytest

from mlxspec_app.app import MlxspecApp
from mlxspec_app.user.editor import EditorError, edit_text
from mlxspec_app.widgets.chat.prompt import Prompt
from tests.support.app_driver import chat

UPPER = (
    "import sys; f = open(sys.argv[1], 'r+'); t = f.read(); f.seek(0); f.write(t.upper() + '!\\n')"
)


def editor(program):
    return {"VISUAL": f'{sys.executable} -c "{program}"', "EDITOR": "nothing"}


def test_the_text_comes_back_as_the_editor_leaves_it():
    assert edit_text("one\ntwo", editor(UPPER)) == "ONE\nTWO!"


@pytest.mark.parametrize(
    ("environment", "why"),
    [
        ({}, "set VISUAL or EDITOR"),
        ({"EDITOR": "/nowhere/vi"}, "cannot be started: .*No such file"),
        ({"EDITOR": "vi 'open"}, "cannot be started: No closing quotation"),
        (editor("exit(3)"), "ended with code 3: the text is unchanged"),
        (editor("import os, sys; os.remove(sys.argv[1])"), "cannot be read: .*No such file"),
    ],
)
def test_an_editor_that_does_not_work_says_why(environment, why):
    with pytest.raises(EditorError, match=why):
        edit_text("one", environment)


async def test_the_prompt_holds_what_was_written(monkeypatch):
    monkeypatch.setenv("VISUAL", editor(UPPER)["VISUAL"])
    monkeypatch.setattr(MlxspecApp, "suspend", lambda app: nullcontext())
    async with chat() as driver:
        prompt = driver.screen.query_one(Prompt)
        await driver.press(*"half", "ctrl+g")
        assert prompt.text == "HALF!"
        await driver.say("/editor")
        assert prompt.text == "!"
        assert prompt.has_focus


async def test_where_the_terminal_cannot_be_shared_or_no_editor_is_named_the_text_stays(
    monkeypatch,
):
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.delenv("EDITOR", raising=False)
    async with chat() as driver:
        await driver.press(*"half", "ctrl+g")
        assert "no other program can use the terminal here" in driver.shown
        monkeypatch.setattr(MlxspecApp, "suspend", lambda app: nullcontext())
        await driver.press("ctrl+g")
        assert "set VISUAL or EDITOR" in driver.shown
        assert driver.screen.query_one(Prompt).text == "half"
