"""The replayed session: recorded times, speeds and stepping."""

import math
from dataclasses import replace

import pytest

from mlxspec.errors import TraceError
from mlxspec.trace.events import DraftProposed, DraftVerified, PlainDecoded
from mlxspec.trace.file import read_trace
from mlxspec_app.conversation.events import (
    AlternativesFound,
    ModelChoice,
    OrderRefused,
    SessionNotice,
)
from mlxspec_app.conversation.fold import fold
from mlxspec_app.conversation.orders import Branch, FindAlternatives, Load, Prove, Race, Say
from mlxspec_app.conversation.rounds import Round
from mlxspec_app.conversation.state import ChatState
from mlxspec_app.playback.replay import ReplaySession
from mlxspec_app.run import run_replay
from tests.support.app_driver import Clock
from tests.support.paths import TRACES
from tests.traces import make_fake


@pytest.fixture
def clock():
    return Clock()


def playing(clock, events=None, **kwargs):
    session = ReplaySession(make_fake.chat() if events is None else events, clock=clock, **kwargs)
    session.start()
    return session


def test_the_traces_beside_the_tests_are_what_the_script_writes():
    for name, make in make_fake.TRACES.items():
        assert list(read_trace(TRACES / f"{name}.jsonl")) == make()


def test_plays_every_event_once_in_order_and_at_its_recorded_time(clock):
    session = playing(clock)
    seen = session.drain()
    moments = session.timeline.moments
    first_round = next(moment for moment in moments if moment.phase == "commit")
    clock.now = first_round.at - 0.001
    seen += session.drain()
    assert first_round.event not in seen
    clock.now = first_round.at
    seen += session.drain()
    assert first_round.event in seen
    while session.busy:
        seen += session.drain()
        clock.now += 0.05
    assert seen[2:] == make_fake.chat()


@pytest.mark.parametrize("speed", [0.25, 4.0])
def test_speed_divides_the_time(clock, speed):
    session = playing(clock, speed=speed)
    clock.now = 0.6 / speed
    session.drain()
    assert session.playhead.now == pytest.approx(0.6)


def test_a_pause_stops_the_time(clock):
    session = playing(clock)
    session.drain()
    session.playhead.paused = True
    clock.now += 10
    assert session.drain() == []
    session.playhead.paused = False
    assert session.drain() == []
    clock.now += 0.5
    assert session.playhead.now == 0.0
    assert session.drain() != []


def test_a_move_by_a_round_pauses_and_shows_exactly_that_round(clock):
    session = playing(clock)
    session.drain()
    for number in range(1, 6):
        session.move("round", 1)
        news = session.drain()
        assert [e.r for e in news if isinstance(e, DraftVerified | PlainDecoded)] == [number]
        clock.now += 10
        assert session.drain() == []


def test_phases_that_share_a_time_are_still_shown_one_by_one(clock):
    events = [replace(e, ms=1e6) if isinstance(e, DraftVerified) else e for e in make_fake.chat()]
    session = playing(clock, events)
    session.playhead.paused = True
    state = fold(session.drain())
    session.go_to(session.timeline.end_of_round(1) - 1)
    fold(session.drain(), state)
    assert isinstance(session.view, Round)
    assert state.reply.text == ""
    session.move("phase", 1)
    assert fold(session.drain(), state).reply.text != ""


def test_going_back_hands_over_the_state_to_go_on_from_and_nothing_of_what_was_wound_past(clock):
    session = playing(clock)
    session.playhead.paused = True
    state = fold(session.drain())
    session.go_to(40)
    fold(session.drain(), state)
    session.go_to(60)
    session.go_to(20)
    (rewound,) = session.drain()
    assert isinstance(rewound, ChatState)
    assert len(rewound.reply.rounds) < len(state.reply.rounds)
    assert session.drain() == []
    session.go_to(40)
    assert fold(session.drain(), rewound).reply.text == state.reply.text


def test_playing_goes_on_from_where_a_move_led(clock):
    session = playing(clock)
    session.drain()
    session.go_to(60)
    session.drain()
    clock.now += session.timeline.time_of(61) - session.timeline.time_of(60)
    session.drain()
    assert session.position == 61


def test_a_draft_that_passes_in_a_blink_is_not_lingered_on(clock):
    session = playing(clock)
    session.drain()
    session.go_to(session.timeline.end_of_round(4) - 2)
    assert isinstance(session.view, DraftProposed)
    assert not session.lingers
    session.playhead.speed = 0.05
    assert session.lingers
    session.playhead.speed, session.playhead.paused = 1.0, True
    assert session.lingers


def test_a_recording_has_no_settings_and_refuses_what_needs_a_model(clock):
    session = playing(clock)
    assert session.settings is None
    session.playhead.paused = True
    session.drain()
    for order, answer in [
        (Load(ModelChoice()), SessionNotice),
        (Prove(), OrderRefused),
        (FindAlternatives(0, 1), AlternativesFound),
        (Branch(0, 1, 2), AlternativesFound),
        (Race(), OrderRefused),
        (Say("?"), SessionNotice),
    ]:
        session.send(order)
        assert [type(event) for event in session.drain()] == [answer]


def test_the_speed_goes_from_a_twentieth_to_four_times_and_an_unusual_one_stays_until_changed(
    clock,
):
    playhead = playing(clock, speed=16.0).playhead
    seen = []
    for direction in ["faster", *["slower"] * 9, *["faster"] * 9]:
        playhead.change_speed(direction)
        seen.append(playhead.speed)
    assert seen[:2] == [16.0, 4.0]
    assert (min(seen), seen[9], seen[-1]) == (0.05, 0.05, 4.0)


def test_a_trace_without_events_is_refused(tmp_path):
    (tmp_path / "empty.jsonl").touch()
    with pytest.raises(TraceError, match="has no events"):
        run_replay(tmp_path / "empty.jsonl")


@pytest.mark.parametrize("speed", [0.0, -1.0, math.nan])
def test_a_speed_that_never_arrives_is_refused(speed):
    with pytest.raises(ValueError, match="above 0"):
        run_replay(TRACES / "chat.jsonl", speed)
