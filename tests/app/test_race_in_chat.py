"""`/race` in the chat: both runs are shown while they are recorded, then on one clock."""

import threading
from dataclasses import replace

import pytest

from mlxspec_app.conversation.events import (
    OrderRefused,
    RaceFinished,
    RaceProgress,
    SessionReady,
)
from mlxspec_app.conversation.fold import fold
from mlxspec_app.conversation.orders import Race, Stop
from mlxspec_app.screens.race import LiveRaceScreen
from tests.support.app_driver import running
from tests.support.app_live import PARAMS, Live
from tests.support.race_driver import NUM_TOKENS, PLAIN, TREE, RaceDriver
from tests.support.scripted_session import ScriptedSession


def of_run(run, events):
    return [RaceProgress(run, event) for event in events]


@pytest.mark.parametrize(
    ("typed", "order"),
    [
        ("/race", Race("", 150)),
        ("/race why is it blue?", Race("why is it blue?", 150)),
        ("/race 300", Race("", 300)),
        ("/race 300 why is it blue?", Race("why is it blue?", 300)),
        ("/race 0 is a number", Race("0 is a number", 150)),
    ],
)
async def test_a_race_has_150_tokens_unless_another_number_is_asked_for(typed, order):
    session = ScriptedSession(SessionReady())
    async with running(session) as driver:
        await driver.say(typed)
        assert session.orders[-1] == order


async def test_the_model_alone_streams_first_with_a_count_and_the_end_says_identical():
    session = ScriptedSession(SessionReady())
    async with running(session, size=(140, 30)) as driver:
        chat = driver.app.screen
        await driver.say("/race why is it blue?")
        session.news += of_run(0, PLAIN[:20])
        await driver.settle()
        screen = driver.app.screen
        assert isinstance(screen, LiveRaceScreen)
        written = screen.race.tracks[0].tokens
        assert 0 < written < NUM_TOKENS
        assert f"{written}/150 tok" in driver.shown
        assert "first the model alone, then with guesses" in driver.shown
        assert PLAIN[8].emit[0].text.strip() in driver.shown
        await driver.press("space", "right")  # keys of the player, which has nothing to play yet
        session.news += [*of_run(0, PLAIN[20:]), *of_run(1, TREE[:9])]
        chat.tick()  # it hears the events, and the screen above it draws them
        await driver.settle()
        assert f"{NUM_TOKENS}/{NUM_TOKENS} tok" in driver.shown
        assert "now with guesses" in driver.shown
        session.news += [*of_run(1, TREE[9:]), RaceFinished()]
        chat.tick()
        await driver.settle()
        assert [track.name for track in screen.race.tracks] == ["model alone", "with guesses"]
        assert f"identical: {NUM_TOKENS} of {NUM_TOKENS} tokens" in driver.shown
        assert "■ end" in driver.shown
        texts = RaceDriver(driver.pilot, screen.race, driver.clock).texts
        assert texts[0] == texts[1] != ""
        await driver.press("home")
        assert screen.race.tracks[1].tokens == 0
        assert not any(isinstance(order, Stop) for order in session.orders)
        await driver.press("escape")
        assert not isinstance(driver.app.screen, LiveRaceScreen)


async def test_escape_stops_a_race_that_is_recorded_and_comes_back():
    session = ScriptedSession(SessionReady())
    async with running(session) as driver:
        await driver.say("/race why is it blue?")
        session.news += of_run(0, PLAIN[:20])
        await driver.settle()
        await driver.press("escape")
        assert session.orders[-1] == Stop()
        session.news += [*of_run(0, PLAIN[20:24]), RaceFinished(is_stopped=True)]
        await driver.settle()
        assert not isinstance(driver.app.screen, LiveRaceScreen)
        assert "the race was stopped; the chat is as it was" in driver.shown
        assert driver.screen.state.phase == "ready"


async def test_a_race_that_fails_in_the_middle_says_why_and_stays_to_be_read():
    session = ScriptedSession(SessionReady())
    async with running(session) as driver:
        await driver.say("/race why is it blue?")
        session.news += [*of_run(0, PLAIN[:20]), OrderRefused("no race: out of memory")]
        await driver.settle()
        assert driver.app.screen.race.agreement.line.startswith("not compared")
        await driver.press("escape")
        assert "no race: out of memory" in driver.shown


def test_a_race_is_no_part_of_the_chat_and_of_its_trace(tmp_path):
    live = Live(tmp_path / "trace.jsonl")
    try:
        live.until_a(SessionReady)
        live.session.send(Race("hello", 42))
        live.until_a(RaceFinished)
        runs = [event.run for event in live.news if isinstance(event, RaceProgress)]
        assert runs == sorted(runs)
        assert set(runs) == {0, 1}
        assert live.conversation.said == [("race", replace(PARAMS, max_tokens=42))]
        state = fold(live.news)
        assert (state.messages, state.news, state.notices) == ([], [], [])
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
        assert live.until_a(RaceFinished) == RaceFinished(is_stopped=True)
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
        assert live.until_a(OrderRefused).message == message
    finally:
        live.session.close()
