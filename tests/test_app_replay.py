"""The replayed session: recorded times, speeds, stepping, and answering like a live one."""

import math

import pytest
from app_driver import TRACES, Clock
from traces import make_fake

from mlxspec.errors import TraceError
from mlxspec.events import DraftVerified, GenerationFinished, PlainDecoded, TurnStarted
from mlxspec.trace import read_trace
from mlxspec_app.app import run_replay
from mlxspec_app.replay import PAUSE_BETWEEN_REPLIES_S, ReplaySession, timeline
from mlxspec_app.session import ChatCleared, ReplyDiscarded, SessionNotice
from mlxspec_app.state import fold


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


def test_plays_every_event_once_and_in_order(clock):
    session = playing(clock, autoplay=True)
    seen = []
    while session.busy:
        seen += session.drain()
        clock.now += 0.05
    assert seen[2:] == make_fake.chat()


def test_an_event_comes_at_its_recorded_time(clock):
    session = playing(clock, autoplay=True)
    session.drain()
    first_round = next(t for t in session.timeline if isinstance(t.event, DraftVerified))
    clock.now = first_round.at - 0.001
    assert first_round.event not in session.drain()
    clock.now = first_round.at
    assert first_round.event in session.drain()


@pytest.mark.parametrize("speed", [0.25, 4.0])
def test_speed_divides_the_time(clock, speed):
    session = playing(clock, autoplay=True, speed=speed)
    clock.now = 0.6 / speed
    session.drain()
    assert session.position == pytest.approx(0.6)


def test_a_pause_stops_the_time(clock):
    session = playing(clock, autoplay=True)
    session.drain()
    session.paused = True
    clock.now += 10
    assert session.drain() == []
    session.paused = False
    assert session.drain() == []
    clock.now += 0.5
    assert session.position == 0.0
    assert session.drain() != []


def test_a_step_shows_exactly_one_round(clock):
    session = playing(clock, autoplay=True)
    session.drain()
    for number in range(1, 6):
        session.step()
        news = session.drain()
        assert [e.r for e in news if isinstance(e, DraftVerified | PlainDecoded)] == [number]
        assert session.rounds_played == number
        clock.now += 10
        assert session.drain() == []


def test_replies_follow_each_other_after_a_pause():
    laid_out = timeline(make_fake.chat())
    times = [timed.at for timed in laid_out]
    assert times == sorted(times)
    end = next(i for i, timed in enumerate(laid_out) if isinstance(timed.event, GenerationFinished))
    assert laid_out[end + 1].at == pytest.approx(laid_out[end].at + PAUSE_BETWEEN_REPLIES_S)


def test_speed_stays_within_bounds(clock):
    session = playing(clock)
    for _ in range(20):
        session.change_speed("faster")
    assert session.speed == 16
    for _ in range(20):
        session.change_speed("slower")
    assert session.speed == 1 / 16


def test_a_message_is_answered_with_the_next_recorded_reply(clock):
    session = playing(clock, speed=math.inf)
    session.send("my own words")
    state = fold(session.drain())
    assert [message.text for message in state.messages] == ["my own words", make_fake.PROSE]
    session.send("and now?")
    assert fold(session.drain(), state).messages[-1].text == make_fake.CODE


def test_a_recording_that_is_over_starts_again(clock):
    session = playing(clock, make_fake.tree(), speed=math.inf)
    session.send("one")
    session.drain()
    session.send("two")
    news = session.drain()
    assert isinstance(news[0], SessionNotice)
    assert fold(news).messages[-1].text == make_fake.PROSE


def test_an_empty_recording_cannot_answer(clock):
    session = playing(clock, [])
    session.send("hello?")
    assert any(isinstance(event, SessionNotice) for event in session.drain())
    assert not session.busy


def test_a_stopped_reply_ends_as_cancelled(clock):
    session = playing(clock)
    session.send("hi")
    clock.now += 0.5
    session.drain()
    session.stop()
    news = session.drain()
    assert isinstance(news[-1], GenerationFinished)
    assert news[-1].reason == "cancelled"
    assert not session.busy


def test_stopping_nothing_says_nothing(clock):
    session = playing(clock)
    session.drain()
    session.stop()
    assert session.drain() == []


def test_regenerating_plays_the_last_reply_again(clock):
    session = playing(clock, speed=math.inf)
    session.send("hi")
    state = fold(session.drain())
    session.regenerate()
    news = session.drain()
    assert isinstance(news[0], ReplyDiscarded)
    assert [m.text for m in fold(news, state).messages] == ["hi", make_fake.PROSE]


def test_a_new_chat_begins_the_recording_anew(clock):
    session = playing(clock, speed=math.inf)
    session.send("hi")
    session.drain()
    session.new_chat()
    assert isinstance(session.drain()[-1], ChatCleared)
    session.send("hi")
    assert fold(session.drain()).messages[-1].text == make_fake.PROSE


def test_a_system_turn_is_not_mistaken_for_the_question(clock):
    session = playing(clock, [TurnStarted("system", "be brief"), *make_fake.tree()], speed=math.inf)
    session.send("mine")
    assert [m.role for m in fold(session.drain()).messages] == ["user", "assistant"]


def test_a_trace_without_events_is_refused(tmp_path):
    (tmp_path / "empty.jsonl").touch()
    with pytest.raises(TraceError, match="holds no events"):
        run_replay(tmp_path / "empty.jsonl")


@pytest.mark.parametrize("speed", [0.0, -1.0, math.nan])
def test_a_speed_that_never_arrives_is_refused(speed):
    with pytest.raises(ValueError, match="above 0"):
        run_replay(TRACES / "chat.jsonl", speed)
