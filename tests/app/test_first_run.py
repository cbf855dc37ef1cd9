"""The first run: three cards, shown once, while the model is loaded."""

from dataclasses import replace

import pytest

from mlxspec.device import backend
from mlxspec.device.backend import DeviceFacts
from mlxspec.drafting.entries import ModelEntry
from mlxspec_app.conversation.events import LoadProgress, SessionOpening, SessionReady
from mlxspec_app.playback import demo
from mlxspec_app.screens.chat.screen import ChatScreen
from mlxspec_app.screens.first_run import FirstRunScreen, RecordedRace
from mlxspec_app.settings.file import Settings
from mlxspec_app.user.paths import find_paths
from mlxspec_app.user_data import UserData, find_user_data
from mlxspec_app.widgets.chat.token_message import TokenMessage
from mlxspec_cli import chat_models
from mlxspec_cli.chat_models import introduce, machine_lines, model_lines
from tests.support.app_driver import running
from tests.support.model_folders import save_folder, save_json
from tests.support.scripted_session import ScriptedSession

MACHINE = DeviceFacts("A chip", "cpu", "a library", False, 16.0, 8, "Linux", "3.11", "0.32")
MODEL = ModelEntry("small", "Small", 0.1, memory_gb=0.1, is_here=False)
FACTS = {"machine": machine_lines(MACHINE), "model": model_lines("Small", MODEL, 16.0)}


@pytest.fixture
def user_data(tmp_path):
    return UserData(find_paths(tmp_path), Settings(reduced_motion=True), is_new=True)


def first_run(user_data, **options):
    news = (SessionOpening("Small", "auto"), LoadProgress(10_000_000, 98_000_000))
    return running(ScriptedSession(*news), user_data=user_data, introduce=lambda: FACTS, **options)


@pytest.mark.parametrize("size", [(80, 24), (140, 45), (200, 60)])
async def test_three_cards_tell_of_the_machine_the_model_and_a_race_in_plain_words(user_data, size):
    user_data.settings = Settings(reduced_motion=True, keys={"view.ink": "f7"})
    async with first_run(user_data, size=size) as driver:
        await driver.app.workers.wait_for_complete()
        await driver.settle()
        assert "1 of 3" in driver.shown
        assert "A chip, 8 cores, 16 GB" in driver.shown
        await driver.press("enter")
        assert "Small, 100 MB" in driver.shown
        assert "It is being downloaded, just this once." in driver.shown
        await driver.press("enter")
        assert driver.shown.count("# Output: 0") == 2
        # by hand from the two traces: 241 tokens each, 241 - 1 of them in 11.66 and 6.44 s
        assert "The same text, 1.8x the speed" in driver.shown
        assert "recorded earlier on Intel Xeon" in driver.shown
        rows = [row.strip().split("  ")[0] for row in driver.shown.split("\n")]
        first = rows.index("Enter")
        assert rows[first : first + 5] == ["Enter", "F7", "/race", "Ctrl+O", "F1"]
        for jargon in ("draft tree", "target", "acceptance", "tok/s", "speculat"):
            assert jargon not in driver.shown
        await driver.press("enter")
        assert isinstance(driver.app.screen, ChatScreen)


async def test_left_goes_back_escape_skips_and_the_model_is_loaded_meanwhile(user_data):
    async with first_run(user_data) as driver:
        await driver.press("enter", "left", "left")
        assert "1 of 3" in driver.shown
        assert driver.session.orders == ["start"]
        for news, words in (([], "10 MB of 98 MB"), ([SessionReady()], "the model is ready")):
            driver.session.news += news
            driver.app.screen_stack[0].tick()
            await driver.settle()
            assert words in driver.shown
        await driver.press("escape")
        assert isinstance(driver.app.screen, ChatScreen)


async def test_the_race_plays_before_there_is_a_model(user_data):
    user_data.settings = Settings()
    async with first_run(user_data) as driver:
        await driver.press("enter", "enter")
        race = driver.app.screen.query_one(RecordedRace)
        race._race.playhead.jump(4.0)
        race.tick()
        await driver.settle()
        alone, guessed = race.query(TokenMessage)
        assert guessed.text.startswith(alone.text)
        assert len(guessed.text) > len(alone.text) > 0
        assert "x the speed" not in driver.shown


async def test_on_a_small_terminal_the_race_and_its_keys_are_reached_by_scrolling(user_data):
    async with first_run(user_data, size=(30, 10)) as driver:
        await driver.press("enter", "enter")
        seen = driver.shown.split()
        for _ in range(60):
            await driver.press("down")
            seen += driver.shown.split()
        words = " ".join(seen)
        for part in ("model alone 12 s", "with guesses 6.74 s", "Output: 0", "F1 help"):
            assert part in words


async def test_an_installation_without_the_recordings_says_so(user_data, monkeypatch, tmp_path):
    monkeypatch.setattr(demo, "asset", lambda name: tmp_path / name)
    async with first_run(user_data, size=(140, 45)) as driver:
        await driver.press("enter", "enter")
        assert "code-plain.jsonl is not part of this installation" in driver.shown
        assert "Ctrl+O" in driver.shown


async def test_it_is_shown_once(tmp_path):
    session, user_data = ScriptedSession(), find_user_data(tmp_path)
    async with running(session, user_data=user_data, introduce=lambda: FACTS) as driver:
        assert isinstance(driver.app.screen, FirstRunScreen)
    find_paths(tmp_path).store.touch()
    assert not find_user_data(tmp_path).is_new
    user_data.is_new = False
    async with running(session, user_data=user_data, introduce=lambda: FACTS) as driver:
        assert isinstance(driver.app.screen, ChatScreen)


@pytest.mark.parametrize(
    ("lines", "line"),
    [
        (
            machine_lines(replace(MACHINE, is_stock_blas=True)),
            "drafting cannot pay: `mlxspec doctor`",
        ),
        (machine_lines(MACHINE), "MLX computes on the CPU with a library."),
        (
            machine_lines(replace(MACHINE, blas="", backend="metal")),
            "MLX computes on the GPU, by Metal.",
        ),
        (model_lines("Small", MODEL, 0.11), "It may not fit in memory"),
        (model_lines("Small", MODEL, 0.09), "It may not fit in memory"),
        (model_lines("Small", replace(MODEL, is_here=True), 16.0), "It is on this disk."),
        (model_lines("Small", None, 16.0), "Small\nIt is being downloaded"),
        (model_lines("Small", MODEL, 16.0), "Small, 100 MB\nIt fits in memory."),
    ],
)
def test_the_machine_and_the_model_are_told_as_they_are(lines, line):
    assert line in "\n".join(lines)


def test_the_facts_are_those_of_this_machine_and_model(tmp_path, monkeypatch):
    monkeypatch.setenv("MLXSPEC_HOME", str(tmp_path))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    default = introduce("")
    assert f"{backend.facts().memory_gb:.0f} GB of memory" in default["machine"][0]
    name, _, where, _ = default["model"]
    assert name == "SmolLM2-135M-Instruct, 93 MB"  # of the download
    assert where == "It is being downloaded, just this once."
    model = tmp_path / "m.gguf"
    model.write_bytes(b"0" * 2_000_000)
    name, where, _ = introduce(str(model))["model"]
    assert (name, where) == (f"{model}, 2 MB", "It is on this disk.")
    assert introduce("someone/else")["model"][:2] == [
        "someone/else",
        "It is being downloaded, just this once.",
    ]
    folder = save_folder(tmp_path / "tiny")
    save_json(folder / "tokenizer_config.json", {"chat_template": "{{ messages }}"})
    assert "It fits in memory." in introduce(str(folder))["model"]
    monkeypatch.setattr(chat_models, "usable_gb", lambda: 1e-9)
    assert "It fits in memory." not in introduce(str(folder))["model"]
