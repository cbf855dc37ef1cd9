"""The menu above the prompt: what it offers, what Enter, Tab, the arrows and Esc do with it."""

from pathlib import Path

import pytest

from mlxspec.drafting.entries import ModelEntry
from mlxspec.drafting.names import HOST, WORDS
from mlxspec.drafting.registry import HOST_DRAFTERS
from mlxspec_app.conversation.events import ModelChoice, SessionOpening, SessionReady
from mlxspec_app.conversation.orders import Say
from mlxspec_app.export.filing import FORMATS
from mlxspec_app.screens.help import HelpScreen
from mlxspec_app.user_data import find_user_data
from mlxspec_app.widgets.chat.command_hints import CommandHints, completions
from mlxspec_app.widgets.chat.prompt import Prompt
from tests.support.app_driver import chat, running
from tests.support.fake_catalogue import FakeCatalogue
from tests.support.scripted_session import ScriptedSession

OPENING = SessionOpening("t", "pool", ModelChoice("qwen", "pool"))


def lines(typed, **words):
    return [row.line for row in completions(typed, words, Path()).found]


@pytest.mark.parametrize(
    ("typed", "found"),
    [
        ("/ver", ["/verify"]),
        ("/k", ["/k "]),
        ("/exp", ["/export "]),
        ("/theme mi", ["/theme mint"]),
        ("/export ", [f"/export {n}" for n in FORMATS]),
        ("/draft su", ["/draft suffix"]),
        ("/retry ", ["/retry same", "/retry new"]),
        ("/exact_seed ", ["/exact_seed on", "/exact_seed off"]),
        ("/temp ", []),
        ("/export html a", []),
        ("hello", []),
    ],
)
def test_a_line_is_completed_by_commands_and_their_arguments(typed, found):
    assert lines(typed) == found


def test_a_choice_says_what_it_does():
    same, new = completions("/retry ", {}, Path()).found
    assert (same.meaning, new.meaning) == (
        "retry the last reply with the present seed",
        "retry the last reply with a new seed",
    )


def test_an_argument_that_is_known_late_is_found_by_its_beginning_then_by_any_part():
    names = ("org/Quick", "quick", "Slow")
    assert lines("/model qui", model=names) == ["/model quick", "/model org/Quick"]


@pytest.mark.parametrize(
    ("typed", "is_chosen"),
    [
        ("/ver", True),
        ("/theme ", False),
        ("/theme d", True),
        ("/export ", False),
        ("see @t", False),
    ],
)
def test_enter_takes_the_first_only_where_the_line_cannot_be_meant_as_it_is(typed, is_chosen):
    folder = Path(__file__).parent
    found = completions(typed, {}, folder)
    assert found.found
    assert found.is_chosen == is_chosen


def test_the_words_of_drafters_are_those_that_can_be_built():
    assert set(HOST) == set(HOST_DRAFTERS)
    assert set(WORDS) > set(HOST)


async def test_enter_runs_the_marked_command_with_the_marked_argument(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    async with chat() as driver:
        await driver.press(*"/hel", "enter")
        assert isinstance(driver.app.screen, HelpScreen)
        await driver.press("escape")
        assert driver.screen.query_one(Prompt).text == ""
        await driver.say("hello")
        await driver.press(*"/export m")
        assert "› md" in driver.shown  # noqa: RUF001 - the mark
        await driver.press("enter")
        await driver.app.workers.wait_for_complete()
        assert [path.suffix for path in tmp_path.iterdir()] == [".md"]


async def test_the_arrows_walk_the_whole_menu_and_enter_takes_where_they_stop():
    async with chat() as driver:
        await driver.press("/")
        hints = driver.screen.query_one(CommandHints)
        seen = []
        for _ in range(len(hints._rows)):
            assert hints.marked.label in driver.shown
            seen.append(hints.marked.line)
            await driver.press("down")
        assert len(set(seen)) == len(hints._rows)
        assert hints.marked.line == seen[0]
        await driver.press(*"st", "down", "enter")
        assert driver.screen.panels._stats is not None  # /stats, not /stop
        await driver.press(*"/theme ", "up")
        assert hints.marked.line == "/theme terminal-light"
        await driver.press("down", "enter")
        assert driver.app.settings.theme == "mint"


async def test_a_name_of_a_file_is_taken_by_enter_only_once_it_is_marked(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notes.txt").write_text("x")
    async with running(ScriptedSession(SessionReady())) as driver:
        await driver.press(*"hi @no", "enter")
        assert driver.session.orders[-1] == Say("hi @no")
        await driver.press(*"hi @no", "down", "enter")
        assert driver.screen.query_one(Prompt).text == "hi @notes.txt "


async def test_the_models_that_are_here_complete_the_command(tmp_path):
    user_data = find_user_data(tmp_path)
    user_data.catalogue = FakeCatalogue()
    user_data.catalogue.models = lambda: [
        ModelEntry("", "Default", 1.0),
        ModelEntry("org/Here", "Here", 1.0),
        ModelEntry("org/Ill", "Ill", 1.0, problem="not a model"),
    ]
    session = ScriptedSession(OPENING, SessionReady())
    async with running(session, user_data=user_data) as driver:
        await driver.press(*"/model ")
        await driver.app.workers.wait_for_complete()
        await driver.press(*"her", "tab")
        assert driver.screen.query_one(Prompt).text == "/model org/Here"
        hints = driver.screen.query_one(CommandHints)
        assert hints.words["model"] == ["default", "org/Here"]


async def test_what_escape_left_or_is_refused_stays_in_the_prompt_and_the_history_has_no_menu():
    async with running(ScriptedSession(OPENING, SessionReady())) as driver:
        prompt = driver.screen.query_one(Prompt)
        await driver.press(*"/hel", "escape", "enter")
        assert prompt.text == "/hel"
        assert "did you mean /help" in driver.shown
        for line, why in (
            ("/draft sufix", "drafter 'sufix' is not known"),
            ("/hlep", "did you mean /help"),
            ("/ink red", "got 'red'"),
        ):
            prompt.clear()
            await driver.say(line)
            assert prompt.text == line
            assert why in driver.shown
        assert driver.session.orders == ["start"]
        await driver.say("/tree")
        await driver.say("one")
        for text in ("one", "/tree"):
            await driver.press("up")
            assert prompt.text == text
        assert not driver.screen.query_one(CommandHints).display
