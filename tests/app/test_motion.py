"""Where less motion is asked for nothing moves or blinks unasked."""

from contextlib import asynccontextmanager

import pytest
from textual import constants
from textual.widgets import Input

from mlxspec_app.app import MlxspecApp
from mlxspec_app.frames import PANELS_PER_S, PANELS_PER_S_AT_REST
from mlxspec_app.playback.race import Race, Track
from mlxspec_app.playback.replay import ReplaySession
from mlxspec_app.screens.chat.screen import ChatScreen
from mlxspec_app.screens.race import RaceScreen
from mlxspec_app.screens.replay import ReplayScreen
from mlxspec_app.widgets.chat.prompt import Prompt
from tests.support.app_driver import Clock
from tests.support.scripted_session import ScriptedSession
from tests.traces import make_fake


@asynccontextmanager
async def running(screen, *, still):
    app = MlxspecApp(lambda: screen)
    if still:
        app.animation_level = "none"
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.pause()
        yield pilot


def replay_screen():
    return ReplayScreen(ReplaySession(make_fake.tree(), clock=Clock()))


@pytest.mark.parametrize("still", [True, False])
async def test_a_replay_waits_to_be_played_and_its_cursor_stands_still(still):
    screen = replay_screen()
    async with running(screen, still=still) as pilot:
        assert screen.recording.playhead.paused == still
        await pilot.press("space")
        assert screen.recording.playhead.paused != still
        await pilot.press("g")
        assert pilot.app.screen.query_one(Input).has_focus
        assert pilot.app.screen.query_one(Input).cursor_blink != still


def test_the_environment_asks_for_the_same(monkeypatch):
    monkeypatch.setattr(constants, "TEXTUAL_ANIMATIONS", "none")
    assert MlxspecApp(replay_screen).animation_level == "none"


@pytest.mark.parametrize(("still", "rate"), [(True, 1), (False, PANELS_PER_S)])
async def test_the_cursor_stands_still_and_panels_change_at_most_once_a_second(still, rate):
    intervals = []
    screen = ChatScreen(ScriptedSession())
    set_interval = screen.set_interval

    def note(seconds, *rest, **more):
        intervals.append(seconds)
        return set_interval(seconds, *rest, **more)

    screen.set_interval = note
    async with running(screen, still=still) as pilot:
        assert pilot.app.screen.query_one(Prompt).cursor_blink != still
        assert PANELS_PER_S_AT_REST == 1
        assert 1 / rate in intervals


async def test_a_race_waits_to_be_run_where_nothing_may_move():
    race = Race([Track(lane, make_fake.tree()) for lane in "AB"], Clock())
    async with running(RaceScreen(race), still=True):
        assert race.playhead.paused
