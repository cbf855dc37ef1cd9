"""`/race` in the chat: both runs are recorded, then they play side by side."""

import threading

import pytest

from mlxspec_app.conversation.events import RaceFinished, RaceProgress, SessionReady
from mlxspec_app.conversation.fold import fold
from mlxspec_app.conversation.orders import Race, Stop
from mlxspec_app.screens.race import LiveRaceScreen
from tests.support.app_driver import running
from tests.support.app_live import Live
from tests.support.race_driver import NUM_TOKENS, PLAIN, TREE
from tests.support.scripted_session import ScriptedSession


async def test_the_prompt_after_the_word_is_raced_and_escape_comes_back():
    session = ScriptedSession(SessionReady())
    async with running(session) as driver:
        await driver.say("/race why is it blue?")
        assert Race("why is it blue?") in session.orders
        session.news += [RaceProgress("none")]
        await driver.settle()
        assert "race: recording the run with drafter none" in driver.shown
        session.news += [RaceFinished(tuple(PLAIN), tuple(TREE))]
        await driver.settle()
        screen = driver.app.screen
        assert isinstance(screen, LiveRaceScreen)
        assert [track.name for track in screen.race.tracks] == ["model alone", "with guesses"]
        assert screen.race.agreement.line.startswith(
            f"identical: {NUM_TOKENS} of {NUM_TOKENS} tokens"
        )
        await driver.press("escape")
        assert not isinstance(driver.app.screen, LiveRaceScreen)
        assert "race:" not in driver.shown


def test_a_race_is_no_part_of_the_chat_and_of_its_trace(tmp_path):
    live = Live(tmp_path / "trace.jsonl")
    try:
        live.until_a(SessionReady)
        live.session.send(Race("hello"))
        found = live.until_a(RaceFinished)
        assert [event.drafter for event in live.news if isinstance(event, RaceProgress)] == [
            "none",
            "tree",
        ]
        assert found.plain
        assert found.drafted
        assert not fold(live.news).messages
        begun = [event for event in live.news if not isinstance(event, RaceFinished)]
        assert "drafter tree" in fold(begun).news[-1]
        assert not fold(live.news).news
        assert not fold(begun).notices
    finally:
        live.session.close()
    assert "hello" not in (tmp_path / "trace.jsonl").read_text()


def test_a_race_that_was_stopped_is_no_trouble():
    live = Live()
    try:
        live.until_a(SessionReady)
        live.conversation.gate = threading.Semaphore(8)
        live.session.send(Race("hello"))
        live.until_a(RaceProgress)
        live.session.send(Stop())
        live.conversation.gate.release(1_000_000)
        assert live.until_a(RaceFinished) == RaceFinished()
        assert fold(live.news).news == ["the race was stopped; the chat is as it was"]
        assert not fold(live.news).notices
    finally:
        live.session.close()


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (ValueError("say something"), "no race: say something"),
        (OSError("x"), "no race: OSError: x"),
    ],
)
def test_why_there_is_no_race_is_said(error, message):
    live = Live()
    try:
        live.until_a(SessionReady)
        live.conversation.error = error
        live.session.send(Race(""))
        assert live.until_a(RaceFinished).message == message
    finally:
        live.session.close()
