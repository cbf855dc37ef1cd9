"""The timeline of a recording, the moves in it, and the states that going back hands over."""

from dataclasses import fields
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlxspec.trace.events import (
    DraftNode,
    DraftProposed,
    DraftVerified,
    EmittedToken,
    GenerationFailed,
    GenerationFinished,
    GenerationStarted,
    PlainDecoded,
    PrefillProgress,
    TurnStarted,
)
from mlxspec_app.conversation.fold import fold
from mlxspec_app.conversation.rounds import Round
from mlxspec_app.playback import timeline as rewind
from mlxspec_app.playback.events_of import events_of
from mlxspec_app.playback.timeline import PAUSE_BETWEEN_REPLIES_S, Checkpoints, Timeline
from mlxspec_app.widgets.scrubber import cell_of, cells, rounds_at
from tests.traces import make_fake

RECORDINGS = {name: make() for name, make in make_fake.TRACES.items()}
RECORDINGS["cut off"] = make_fake.chat()[:40]
RECORDINGS["failed"] = [
    *make_fake.tree()[:9],
    GenerationFailed(1.0, "out of memory"),
    *make_fake.chat(),
]
RECORDINGS["no round"] = [TurnStarted("user", "hi"), GenerationStarted("t", "d")]
RECORDINGS["nothing"] = []
LAID_OUT = {name: Timeline(events) for name, events in RECORDINGS.items()}
NAMES = st.sampled_from(list(RECORDINGS))
EVERY = pytest.mark.parametrize("name", list(RECORDINGS))
UNITS = ("phase", "round", "rejection")
MOVES = st.one_of(
    st.tuples(st.sampled_from(UNITS), st.sampled_from([1, -1])),
    st.tuples(st.just("number"), st.integers(-3, 99)),
    st.tuples(st.just("share"), st.fractions(-0.5, 1.5)),
    st.tuples(st.just("time"), st.floats(0, 3)),
)
EXAMPLES = settings(max_examples=15)


def moved(laid_out, position, move):
    kind, amount = move
    if kind == "number":
        return laid_out.end_of_round(amount)
    if kind == "share":
        return laid_out.at_share(amount)
    if kind == "time":
        return laid_out.reached_at(amount)
    return laid_out.move(position, kind, amount)


def snapshot(record):
    """Everything that a state holds, the numbers of its messages left out."""
    if isinstance(record, list):
        return [snapshot(item) for item in record]
    if not hasattr(record, "messages") and not hasattr(record, "spans"):
        return record
    names = [item.name for item in fields(record) if item.name != "number"]
    return type(record), {name: snapshot(getattr(record, name)) for name in names}


def round_of(path, *nodes):
    made = tuple(DraftNode(i, p, 1, "x", 0.5, "s") for i, p in enumerate(nodes, 1))
    emit = (EmittedToken(1, "x", "bonus"),)
    return [DraftProposed(1, 0.1, 1, made, 1.0), DraftVerified(1, 0.2, path, emit, 50.0, 0, 1)]


@EVERY
def test_every_event_is_folded_once_in_order_and_time_never_runs_back(name):
    laid_out = LAID_OUT[name]
    assert laid_out.events(0, len(laid_out)) == RECORDINGS[name]
    times = [moment.at for moment in laid_out.moments]
    assert times == sorted(times)


@given(NAMES, st.lists(MOVES, max_size=8))
@EXAMPLES
def test_any_moves_lead_to_the_state_that_the_events_up_to_there_give(name, moves):
    rewind._SPACING, spacing = 7, rewind._SPACING
    try:
        laid_out = LAID_OUT[name]
        checkpoints, position = Checkpoints(laid_out), 0
        for move in moves:
            position = moved(laid_out, position, move)
            folded = fold(laid_out.events(0, position))
            assert snapshot(checkpoints.state_at(position)) == snapshot(folded)
    finally:
        rewind._SPACING = spacing


@given(st.integers(0, 200), st.integers(0, 200))
@EXAMPLES
def test_what_becomes_of_a_state_does_not_reach_the_checkpoints(first, second):
    laid_out = LAID_OUT["chat"]
    checkpoints = Checkpoints(laid_out)
    before = snapshot(checkpoints.state_at(second))
    fold(laid_out.events(first, len(laid_out)), checkpoints.state_at(first))
    assert snapshot(checkpoints.state_at(second)) == before


def test_messages_keep_their_numbers_when_going_back():
    checkpoints = Checkpoints(LAID_OUT["chat"])
    one, other = (checkpoints.state_at(len(LAID_OUT["chat"]) - 1) for _ in range(2))
    assert [m.number for m in one.messages] == [m.number for m in other.messages]
    pairs = zip(one.messages, other.messages, strict=True)
    assert [a is b for a, b in pairs] == [True, True, True, False]


@given(NAMES, st.lists(MOVES, max_size=8), st.sampled_from(UNITS))
@EXAMPLES
def test_a_move_back_undoes_a_move_on(name, moves, unit):
    laid_out, position = LAID_OUT[name], 0
    for move in moves:
        position = moved(laid_out, position, move)
        assert 0 <= position <= len(laid_out)
    there = laid_out.move(position, unit, 1)
    again = laid_out.move(laid_out.move(there, unit, 1), unit, -1)
    assert again == there or laid_out.move(there, unit, 1) in (there, len(laid_out))


@EVERY
def test_steps_through_the_phases_stop_at_each_of_them(name):
    laid_out = LAID_OUT[name]
    position, seen = 0, []
    while position < len(laid_out):
        before, position = position, laid_out.move(position, "phase", 1)
        assert position > before
        seen.append(laid_out.moments[position - 1].phase)
    expected = []
    for event in RECORDINGS[name]:
        if isinstance(event, DraftProposed):
            expected.append("draft")
        elif isinstance(event, DraftVerified):
            expected += ["verify", "commit"]
        elif isinstance(event, PlainDecoded):
            expected.append("commit")
        elif isinstance(event, GenerationFinished | GenerationFailed):
            expected.append("end")
        elif expected[-1:] != ["prefill"]:
            expected.append("prefill")
    assert seen == expected


@EVERY
def test_steps_through_the_rounds_visit_every_round(name):
    laid_out = LAID_OUT[name]
    position = 0
    for number, mark in enumerate(laid_out.rounds, 1):
        position = laid_out.move(position, "round", 1)
        assert position == mark.end == laid_out.end_of_round(number)
        assert laid_out.rounds_done(position) == number
        assert laid_out.rounds_done(position - 1) == number - 1
    assert laid_out.move(position, "round", 1) == len(laid_out)


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        (round_of((1, 2), 0, 1), False),  # the whole chain is kept
        (round_of((1,), 0, 1), True),
        (round_of((), 0), True),
        (round_of((1, 3), 0, 0, 1), False),  # a sibling lost, its place went to another draft
        ([PlainDecoded(1, 0.1, (EmittedToken(1, "x", "plain"),), 1.0, 1)], False),
    ],
)
def test_a_rejection_is_a_place_that_no_draft_could_fill(events, expected):
    laid_out = Timeline([GenerationStarted("t", "d"), *events])
    assert [mark.is_rejection for mark in laid_out.rounds] == [expected]


def test_the_next_rejection_stays_put_after_the_last_one():
    laid_out = LAID_OUT["chat"]
    last = max(mark.end for mark in laid_out.rounds if mark.is_rejection)
    assert laid_out.move(0, "rejection", 1) > 0
    assert laid_out.move(last, "rejection", 1) == last
    assert laid_out.move(last + 1, "rejection", -1) == last


def test_a_verdict_is_known_when_the_target_is_done_and_committed_at_its_time():
    draft, verdict = round_of((1,), 0)
    laid_out = Timeline([GenerationStarted("t", "d"), PrefillProgress(0.0, 1, 1), draft, verdict])
    assert [(m.phase, round(m.at, 6)) for m in laid_out.moments[2:]] == [
        ("draft", 0.1),
        ("verify", 0.15),
        ("commit", 0.2),
    ]
    views = [laid_out.view(position) for position in range(len(laid_out) + 1)]
    assert views == [None, None, None, draft, Round(draft, verdict), None]


def test_replies_follow_each_other_after_a_pause():
    moments = LAID_OUT["chat"].moments
    end = next(i for i, m in enumerate(moments) if isinstance(m.event, GenerationFinished))
    assert moments[end + 1].at == pytest.approx(moments[end].at + PAUSE_BETWEEN_REPLIES_S)


@given(NAMES, st.integers(1, 80))
@EXAMPLES
def test_the_strip_is_full_and_shows_every_round(name, width):
    rounds = LAID_OUT[name].rounds
    strip = cells(rounds, width)
    assert len(strip) == (width if rounds else 0)
    shown = [mark for x in range(len(strip)) for mark in rounds_at(rounds, x, width)]
    assert list(dict.fromkeys(shown)) == rounds


@given(st.integers(1, 300), st.integers(1, 120), st.data())
@EXAMPLES
def test_a_click_on_the_mark_leads_to_what_the_mark_stands_for(num_rounds, width, data):
    events = [GenerationStarted("t", "d")]
    events += [PlainDecoded(r, r * 0.1, (), 1.0, 1) for r in range(1, num_rounds + 1)]
    laid_out = Timeline(events)
    done = data.draw(st.integers(1, num_rounds))
    cell = cell_of(done, num_rounds, width)
    assert laid_out.rounds[done - 1] in rounds_at(laid_out.rounds, cell, width)
    picked = laid_out.rounds_done(laid_out.at_share(Fraction(cell, width)))
    assert laid_out.rounds[picked - 1] in rounds_at(laid_out.rounds, cell, width)


def test_the_strip_is_readable_without_colour():
    events = [GenerationStarted("t", "d")]
    for path, nodes in (((), (0,)), ((1,), (0, 1, 2, 3)), ((1, 2, 3, 4), (0, 1, 2, 3))):
        events += round_of(path, *nodes)
    events.append(PlainDecoded(4, 0.3, (), 1.0, 1))
    assert "".join(sign for sign, _ in cells(Timeline(events).rounds, 4)) == "▁▅█ "


def test_a_finished_conversation_is_retold_event_by_event():
    events = make_fake.chat()
    retold = events_of(fold(events))
    early = [event for event in events if getattr(event, "done", 1) == getattr(event, "total", 1)]
    assert [type(event) for event in retold] == [type(event) for event in early]
    assert Timeline(retold).rounds[-1].accepted == LAID_OUT["chat"].rounds[-1].accepted


@given(NAMES, st.integers(0, 120))
@settings(max_examples=20)
def test_what_is_retold_folds_to_the_same_conversation(name, position):
    laid_out = LAID_OUT[name]
    position = min(position, len(laid_out))
    while position and laid_out.moments[position - 1].phase in ("draft", "verify"):
        position -= 1  # a draft that has no verdict yet is not part of the conversation
    state = fold(laid_out.events(0, position))
    again = fold(events_of(state))
    for one, other in zip(state.messages, again.messages, strict=True):
        assert one.text == other.text
        if one.role == "assistant":
            assert snapshot(one.rounds) == snapshot(other.rounds)
            assert (one.reason, one.error) == (other.reason, other.error)
            assert one.stats.as_dict() == other.stats.as_dict()
