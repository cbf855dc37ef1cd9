"""The replayed session: recorded times, speeds, stepping, and answering like a live one."""

import math
from dataclasses import replace

import pytest

from mlxspec.errors import TraceError
from mlxspec.trace.events import (
    DraftProposed,
    DraftVerified,
    GenerationFinished,
    PlainDecoded,
    TurnStarted,
)
from mlxspec.trace.file import read_trace
from mlxspec_app.conversation.events import (
    AlternativesFound,
    ChatCleared,
    ChatOpened,
    ModelChoice,
    ProofFinished,
    RaceFinished,
    ReplyDiscarded,
    SessionNotice,
)
from mlxspec_app.conversation.fold import fold
from mlxspec_app.conversation.orders import (
    Branch,
    FindAlternatives,
    Load,
    NewChat,
    OpenChat,
    Prove,
    Race,
    Regenerate,
    Say,
    Stop,
)
from mlxspec_app.conversation.rounds import Round
from mlxspec_app.conversation.state import ChatState
from mlxspec_app.playback.replay import ReplaySession
from mlxspec_app.playback.timeline import PAUSE_BETWEEN_REPLIES_S, Timeline
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
    moments = session.timeline.moments
    first_round = next(moment for moment in moments if moment.phase == "commit")
    clock.now = first_round.at - 0.001
    assert first_round.event not in session.drain()
    clock.now = first_round.at
    assert first_round.event in session.drain()


@pytest.mark.parametrize("speed", [0.25, 4.0])
def test_speed_divides_the_time(clock, speed):
    session = playing(clock, autoplay=True, speed=speed)
    clock.now = 0.6 / speed
    session.drain()
    assert session.playhead.now == pytest.approx(0.6)


def test_a_pause_stops_the_time(clock):
    session = playing(clock, autoplay=True)
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
    session = playing(clock, autoplay=True)
    session.drain()
    for number in range(1, 6):
        session.move("round", 1)
        news = session.drain()
        assert [e.r for e in news if isinstance(e, DraftVerified | PlainDecoded)] == [number]
        clock.now += 10
        assert session.drain() == []


def test_phases_that_share_a_time_are_still_shown_one_by_one(clock):
    events = [replace(e, ms=1e6) if isinstance(e, DraftVerified) else e for e in make_fake.chat()]
    session = playing(clock, events, autoplay=True)
    session.playhead.paused = True
    state = fold(session.drain())
    session.go_to(session.timeline.end_of_round(1) - 1)
    fold(session.drain(), state)
    assert isinstance(session.view, Round)
    assert state.reply.text == ""
    session.move("phase", 1)
    assert fold(session.drain(), state).reply.text != ""


def test_going_back_hands_over_the_state_to_go_on_from(clock):
    session = playing(clock, autoplay=True)
    state = fold(session.drain())
    session.go_to(40)
    fold(session.drain(), state)
    session.go_to(20)
    (rewound,) = session.drain()
    assert len(rewound.reply.rounds) < len(state.reply.rounds)
    session.go_to(40)
    assert fold(session.drain(), rewound).reply.text == state.reply.text


def test_what_was_wound_past_is_not_told_after_going_back(clock):
    session = playing(clock, autoplay=True)
    session.playhead.paused = True
    session.go_to(40)
    session.go_to(20)
    session.drain()
    assert session.drain() == []
    session.go_to(30)
    session.go_to(10)
    assert [type(item) for item in session.drain()] == [ChatState]


def test_playing_goes_on_from_where_a_move_led(clock):
    session = playing(clock, autoplay=True)
    session.drain()
    session.go_to(60)
    session.drain()
    clock.now += session.timeline.time_of(61) - session.timeline.time_of(60)
    session.drain()
    assert session.position == 61


def test_a_draft_that_passes_in_a_blink_is_not_lingered_on(clock):
    session = playing(clock, autoplay=True)
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
    session.drain()
    for order in (Load(ModelChoice()), Prove(), FindAlternatives(0, 1), Branch(0, 1, 2), Race()):
        session.send(order)
    assert [type(event) for event in session.drain()] == [
        SessionNotice,
        ProofFinished,
        AlternativesFound,
        AlternativesFound,
        RaceFinished,
    ]


def test_replies_follow_each_other_after_a_pause():
    laid_out = Timeline(make_fake.chat()).moments
    times = [timed.at for timed in laid_out]
    assert times == sorted(times)
    end = next(i for i, timed in enumerate(laid_out) if isinstance(timed.event, GenerationFinished))
    assert laid_out[end + 1].at == pytest.approx(laid_out[end].at + PAUSE_BETWEEN_REPLIES_S)


def test_the_speed_goes_from_a_twentieth_to_four_times(clock):
    session = playing(clock)
    seen = set()
    for direction in ["faster"] * 9 + ["slower"] * 9:
        session.playhead.change_speed(direction)
        seen.add(session.playhead.speed)
    assert (min(seen), max(seen)) == (0.05, 4.0)
    assert session.playhead.speed == 0.05


def test_an_unusual_speed_is_kept_until_it_is_changed(clock):
    session = playing(clock, speed=16.0)
    session.playhead.change_speed("faster")
    assert session.playhead.speed == 16.0
    session.playhead.change_speed("slower")
    assert session.playhead.speed == 4.0


def test_a_message_is_answered_with_the_next_recorded_reply(clock):
    session = playing(clock, speed=math.inf)
    session.send(Say("my own words"))
    state = fold(session.drain())
    assert [message.text for message in state.messages] == ["my own words", make_fake.PROSE]
    session.send(Say("and now?"))
    assert fold(session.drain(), state).messages[-1].text == make_fake.CODE


def test_a_recording_that_is_over_starts_again(clock):
    session = playing(clock, make_fake.tree(), speed=math.inf)
    session.send(Say("one"))
    session.drain()
    session.send(Say("two"))
    news = session.drain()
    state = fold(news)
    assert state.news == ["the recording is over and starts again"]
    assert state.messages[-1].text == make_fake.PROSE


def test_an_empty_recording_cannot_answer(clock):
    session = playing(clock, [])
    session.send(Say("hello?"))
    assert any(isinstance(event, SessionNotice) for event in session.drain())
    assert not session.busy


def test_a_stopped_reply_ends_as_cancelled(clock):
    session = playing(clock)
    session.send(Say("hi"))
    clock.now += 0.5
    session.drain()
    session.send(Stop())
    news = session.drain()
    assert isinstance(news[-1], GenerationFinished)
    assert news[-1].reason == "cancelled"
    assert not session.busy


def test_stopping_nothing_says_nothing(clock):
    session = playing(clock)
    session.drain()
    session.send(Stop())
    assert session.drain() == []


def test_regenerating_plays_the_last_reply_again(clock):
    session = playing(clock, speed=math.inf)
    session.send(Say("hi"))
    state = fold(session.drain())
    session.send(Regenerate())
    news = session.drain()
    assert isinstance(news[0], ReplyDiscarded)
    assert [m.text for m in fold(news, state).messages] == ["hi", make_fake.PROSE]


def test_a_new_chat_begins_the_recording_anew(clock):
    session = playing(clock, speed=math.inf)
    session.send(Say("hi"))
    session.drain()
    session.send(NewChat())
    assert isinstance(session.drain()[-1], ChatCleared)
    session.send(Say("hi"))
    assert fold(session.drain()).messages[-1].text == make_fake.PROSE


def test_a_system_turn_is_not_mistaken_for_the_question(clock):
    session = playing(clock, [TurnStarted("system", "be brief"), *make_fake.tree()], speed=math.inf)
    session.send(Say("mine"))
    assert [m.role for m in fold(session.drain()).messages] == ["user", "assistant"]


def test_a_trace_without_events_is_refused(tmp_path):
    (tmp_path / "empty.jsonl").touch()
    with pytest.raises(TraceError, match="has no events"):
        run_replay(tmp_path / "empty.jsonl")


@pytest.mark.parametrize("speed", [0.0, -1.0, math.nan])
def test_a_speed_that_never_arrives_is_refused(speed):
    with pytest.raises(ValueError, match="above 0"):
        run_replay(TRACES / "chat.jsonl", speed)


def test_the_last_reply_of_an_opened_chat_can_be_written_again(clock):
    session = playing(clock, speed=math.inf)
    said = fold([TurnStarted("user", "One"), GenerationFinished(1.0, "stop", "1")]).messages
    session.send(OpenChat(ChatOpened(tuple(said))))
    session.send(Regenerate())
    clock.now += 1
    messages = fold([*session.drain(), *session.drain()]).messages
    assert [message.text for message in messages] == ["One", make_fake.PROSE]
