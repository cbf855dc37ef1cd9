"""The first run: a recorded race, shown once, while the model is loaded."""

import pytest

from mlxspec_app.conversation.events import LoadProgress, SessionOpening, SessionReady
from mlxspec_app.playback import demo
from mlxspec_app.screens.chat.screen import ChatScreen
from mlxspec_app.screens.first_run import FirstRunScreen, RecordedRace
from mlxspec_app.settings.file import Settings
from mlxspec_app.user.paths import find_paths
from mlxspec_app.user_data import UserData, find_user_data
from mlxspec_app.widgets.chat.token_message import TokenMessage
from tests.support.app_driver import running
from tests.support.scripted_session import ScriptedSession


@pytest.fixture
def user_data(tmp_path):
    return UserData(find_paths(tmp_path), Settings(reduced_motion=True), is_new=True)


def first_run(user_data, **options):
    news = (SessionOpening("Small", "auto"), LoadProgress(10_000_000, 98_000_000))
    return running(ScriptedSession(*news), user_data=user_data, introduces=True, **options)


@pytest.mark.parametrize("size", [(80, 24), (140, 45), (200, 60)])
async def test_one_page_tells_of_a_race_and_of_the_first_keys_in_plain_words(user_data, size):
    user_data.settings = Settings(reduced_motion=True, keys={"view.ink": "f7"})
    async with first_run(user_data, size=size) as driver:
        assert driver.shown.count("# Output: 0") == 2
        # by hand from the two traces: 241 tokens each, 241 - 1 of them in 11.66 and 6.44 s
        assert "The same text, 1.8x the speed" in driver.shown
        assert "recorded earlier on Intel Xeon" in driver.shown
        rows = [row.strip().split("  ")[0] for row in driver.shown.split("\n")]
        first = rows.index("Enter")
        assert rows[first : first + 5] == ["Enter", "F7", "/race", "Ctrl+O", "F1"]
        assert "Start" in driver.shown
        for jargon in ("draft tree", "target", "acceptance", "tok/s", "speculat"):
            assert jargon not in driver.shown
        await driver.press("enter")
        assert isinstance(driver.app.screen, ChatScreen)


async def test_the_model_is_loaded_meanwhile_and_escape_starts_too(user_data):
    async with first_run(user_data) as driver:
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
        assert "code-plain.jsonl is not part of this installation" in driver.shown
        assert "Ctrl+O" in driver.shown


async def test_it_is_shown_once(tmp_path):
    session, user_data = ScriptedSession(), find_user_data(tmp_path)
    async with running(session, user_data=user_data, introduces=True) as driver:
        assert isinstance(driver.app.screen, FirstRunScreen)
    find_paths(tmp_path).store.touch()
    assert not find_user_data(tmp_path).is_new
    user_data.is_new = False
    async with running(session, user_data=user_data, introduces=True) as driver:
        assert isinstance(driver.app.screen, ChatScreen)
