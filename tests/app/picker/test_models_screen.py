"""The model picker: what it shows, what it loads, and what it keeps from being loaded."""

import threading
from contextlib import asynccontextmanager, suppress
from dataclasses import replace

import pytest
from textual.worker import WorkerCancelled

from mlxspec_app.conversation.events import (
    LoadFailed,
    LoadProgress,
    ModelChoice,
    SessionOpening,
    SessionReady,
)
from mlxspec_app.conversation.orders import Stop
from mlxspec_app.picker.model_rows import model_facts
from mlxspec_app.screens.models import ChoiceList, ModelsScreen
from mlxspec_app.user_data import find_user_data
from mlxspec_app.widgets.chat.prompt import Prompt
from tests.support.app_driver import running
from tests.support.fake_catalogue import LARGE, MIDDLE, MISSING, OFFERED, SMALL, FakeCatalogue
from tests.support.scripted_session import ScriptedSession

NOW = ModelChoice("", "pool", 512)
OPENING = SessionOpening("SmolLM2-135M-Instruct", "pool", NOW)


@asynccontextmanager
async def picker(tmp_path, catalogue=None, *, size=(100, 30), key="ctrl+o", news=()):
    """A chat with the picker open."""
    session = ScriptedSession(OPENING, SessionReady())
    user_data = find_user_data(tmp_path)
    user_data.catalogue = catalogue or FakeCatalogue()
    async with running(session, size=size, user_data=user_data) as driver:
        session.news += news
        await driver.settle()
        await driver.press(key)
        await read(driver)
        yield driver


async def read(driver):
    """Wait for what is read in threads."""
    for _ in range(2):
        with suppress(WorkerCancelled):  # a picker that is left reads no more
            await driver.app.workers.wait_for_complete()
        await driver.settle()


def highlighted(driver, name):
    return driver.app.screen.query_one(f"#{name}", ChoiceList).highlighted


def loaded(driver):
    return driver.session.loads


@pytest.mark.parametrize("size", [(60, 20), (140, 45)])
async def test_models_and_drafters_are_shown_with_what_speaks_for_and_against_them(tmp_path, size):
    async with picker(tmp_path, size=size) as driver:
        assert "SmolLM2-135M-Instruct" in driver.shown
        assert "730 MB · 98 MB" in driver.shown
        assert "pool  fastest" in driver.shown
        assert "21.5 tokens/s · what" in driver.shown
        assert "vocabulary of 49,152" in driver.shown
        assert "● SmolLM2-135M-Instruct" in driver.shown
        assert "● pool" in driver.shown
        assert (highlighted(driver, "models"), highlighted(driver, "drafters")) == (0, 1)


@pytest.mark.parametrize(
    ("models", "keys", "choice"),
    [
        ((SMALL, MIDDLE), ["down", "enter"], ModelChoice(MIDDLE.source, "auto", 512)),
        ((SMALL, MIDDLE), ["tab", "down", "enter"], ModelChoice("", "none", 512)),
        ((SMALL,), ["shift+tab", *"org", "/", "x", "enter"], ModelChoice("org/x", "auto", 512)),
        ((MISSING,), ["enter"], ModelChoice("", "pool", 512)),
    ],
    ids=["a model", "a drafter", "a typed name", "the default model where none is here"],
)
async def test_enter_loads(tmp_path, models, keys, choice):
    async with picker(tmp_path, FakeCatalogue(models)) as driver:
        for key in keys:
            await driver.press(key)
            await read(driver)
        assert loaded(driver) == [choice]
        assert isinstance(driver.app.focused, Prompt)


async def test_a_click_points_and_a_second_one_loads(tmp_path):
    async with picker(tmp_path) as driver:
        for choices in ([], [ModelChoice(MIDDLE.source, "auto", 512)]):
            await driver.pilot.click("#models", offset=(5, 4))
            await read(driver)
            assert loaded(driver) == choices


async def test_what_cannot_be_run_here_says_why_and_is_not_loaded(tmp_path):
    async with picker(tmp_path) as driver:
        await driver.press("tab", "end", "enter")
        assert "org/other cannot draft here: vocabulary of 49,152" in driver.shown
        await driver.press("shift+tab", "end")
        await read(driver)
        assert "supported are llama, mistral, qwen2" in driver.shown
        await driver.press("enter")
        assert loaded(driver) == []
        await driver.press("escape")
        assert loaded(driver) == []
        assert not isinstance(driver.app.screen, ModelsScreen)


async def test_a_model_that_is_too_large_is_loaded_at_the_second_enter(tmp_path):
    async with picker(tmp_path, FakeCatalogue([SMALL, LARGE])) as driver:
        await driver.press("down")
        await read(driver)
        await driver.press("enter")
        assert "it takes 142.0 GB of 16.0 GB" in driver.shown
        assert loaded(driver) == []
        await driver.press("enter")
        assert loaded(driver) == [ModelChoice(LARGE.source, "auto", 512)]


async def test_the_pair_can_be_made_the_default(tmp_path):
    async with picker(tmp_path) as driver:
        await driver.press("down")
        await read(driver)
        await driver.press("d")
        await read(driver)
        kept = (tmp_path / "settings.toml").read_text()
        assert f'model = "{MIDDLE.source}"' in kept
        assert 'drafter = "auto"' in kept
        assert driver.app.screen_stack[0].user_data.settings.model == MIDDLE.source


@pytest.mark.parametrize(
    ("models", "forgotten", "choices"),
    [((SMALL,), [("", 512)], [ModelChoice("", "auto", 512)]), ((MISSING,), [], [])],
    ids=["with the cache in use", "never of a model that is not here"],
)
async def test_a_key_measures_again_which_drafter_is_fastest(tmp_path, models, forgotten, choices):
    catalogue = FakeCatalogue(models)
    async with picker(tmp_path, catalogue) as driver:
        await driver.press("m")
        await read(driver)
        assert (catalogue.forgotten, loaded(driver)) == (forgotten, choices)


async def test_settings_that_cannot_be_written_are_told(tmp_path):
    (tmp_path / "settings.toml").write_text("not = = toml")
    async with picker(tmp_path) as driver:
        await driver.press("d")
        await read(driver)
        assert "is not TOML" in driver.shown
        assert (tmp_path / "settings.toml").read_text() == "not = = toml"


async def test_a_disk_that_cannot_be_read_is_a_row_and_why_a_load_failed_stands_on_top(tmp_path):
    failed = LoadFailed(ModelChoice("org/x"), "org/x is not cached: connect to the network")
    catalogue = FakeCatalogue(error=OSError("broken disk"))
    async with picker(tmp_path, catalogue, news=[failed]) as driver:
        assert "the models cannot be listed: OSError: broken disk" in driver.shown
        assert "org/x could not be loaded: org/x is not cached" in driver.shown


async def test_a_download_is_seen_and_can_be_stopped_from_the_picker(tmp_path):
    fetching = SessionOpening("org/x", "auto", ModelChoice("org/x"))
    async with picker(tmp_path, news=[fetching, LoadProgress(45, 100)]) as driver:
        assert "downloading org/x 45 %" in driver.shown
        await driver.press("s")
        assert driver.session.orders[-1] == Stop()


async def test_the_drafters_of_a_model_are_asked_for_once(tmp_path):
    catalogue = FakeCatalogue()
    async with picker(tmp_path, catalogue) as driver:
        for key in ("down", "up", "down"):
            await driver.press(key)
            await read(driver)
        assert catalogue.asked == ["", MIDDLE.source]


# ---- what is worth fetching ------------------------------------------------------------------


@asynccontextmanager
async def offered(tmp_path, **options):
    """The picker, at a model that is not here."""
    catalogue = FakeCatalogue([SMALL, OFFERED])
    async with picker(tmp_path, catalogue, **options) as driver:
        await driver.press("down")
        await read(driver)
        try:
            yield driver, catalogue
        finally:
            catalogue.gate.release(9)  # the app waits for its threads


@pytest.mark.parametrize("is_recommended", [False, True])
def test_the_foot_says_which_model_is_recommended(is_recommended):
    model = replace(OFFERED, is_recommended=is_recommended)
    text = model_facts(model, 16.0).plain
    assert text.startswith("Recommended for this machine. Enter") == is_recommended
    assert "Enter downloads it, just this once: 2.3 GB" in text


async def until(driver, words):
    for _ in range(200):
        await driver.pilot.pause(0.02)
        if words in driver.shown:
            return
    raise AssertionError(driver.shown)


async def test_a_key_fetches_a_model_with_its_progress_while_the_chat_stays(tmp_path):
    async with offered(tmp_path, size=(80, 24)) as (driver, catalogue):
        assert "↓ 2.3 GB ✓ ~42 tokens/s · Apache-2.0" in driver.shown
        assert "it fits; about 42 tokens/s without" in driver.shown
        await driver.press("f")
        await until(driver, "downloading org/Wanted-4bit 10 %")
        catalogue.gate.release()
        await until(driver, "downloading org/Wanted-4bit 40 %")
        assert loaded(driver) == []
        catalogue.gate.release()
        await until(driver, "org/Wanted-4bit is here: Enter loads it")
        await read(driver)
        assert "↓ 2.3 GB" not in driver.shown
        assert catalogue.fetched == [OFFERED.source]


async def test_a_download_outlives_the_picker_and_can_be_stopped_and_gone_on_with(tmp_path):
    async with offered(tmp_path) as (driver, catalogue):
        await driver.press("f")
        await until(driver, "downloading org/Wanted-4bit 10 %")
        await driver.press("escape", "ctrl+o")
        await until(driver, "downloading org/Wanted-4bit 10 %")
        await driver.press("s")
        catalogue.gate.release()
        await until(driver, "was not downloaded: the download was stopped")
        assert driver.session.orders == ["start"]  # what the session does is left alone
        await driver.press("down")
        await read(driver)
        await driver.press("f")
        catalogue.gate.release(2)
        await until(driver, "is here: Enter loads it")


async def test_a_download_that_fails_says_why(tmp_path):
    async with offered(tmp_path) as (driver, catalogue):
        catalogue.gate = None  # a broken download
        await driver.press("f")
        await until(driver, "org/Wanted-4bit was not downloaded: AttributeError")
        catalogue.gate = threading.Semaphore(0)
