"""The measured figures: the plain line, the speed-up against it, and the cost by rows."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlxspec.trace.events import (
    CostMeasured,
    DraftNode,
    DraftProposed,
    DraftVerified,
    EmittedToken,
    GenerationFinished,
    GenerationStarted,
    PlainDecoded,
    PrefillProgress,
    SpeedupMeasured,
    TurnStarted,
)
from mlxspec_app.conversation.baseline import PlainCosts, speedup
from mlxspec_app.conversation.events import (
    ChatCleared,
    ReplyDiscarded,
    SessionOpening,
    SessionReady,
)
from mlxspec_app.conversation.figures import quiet_figures, reply_figures, times_plain
from mlxspec_app.conversation.fold import fold
from mlxspec_app.export import markdown
from mlxspec_app.export.html import render
from mlxspec_app.export.recording import Recording
from mlxspec_app.playback.events_of import events_of
from mlxspec_app.playback.race import Track
from mlxspec_app.playback.timeline import Timeline
from mlxspec_app.text.bars import columns
from mlxspec_app.widgets.chat.notice_rows import NoticeRows
from mlxspec_app.widgets.stats_panel import cost_rows, speed_rows
from tests.support.app_driver import replay, running
from tests.support.scripted_session import ScriptedSession
from tests.traces import make_fake

COST = CostMeasured(9.0, 1931, (1, 2, 4, 8), (20.0, 22.0, 26.0, 40.0))  # plain: 50 tokens/s
STARTED = GenerationStarted("t", "d")
WORD = EmittedToken(1, " a", "accepted")


def told(*rounds, prefill=1.0):
    """A reply of (end in seconds, tokens) whose rounds drafted three nodes each."""
    yield from (TurnStarted("user", "x"), STARTED, PrefillProgress(prefill, 5, 5))
    for r, (ts, count) in enumerate(rounds, 1):
        nodes = tuple(DraftNode(i, i - 1, 1, " a", 0.5, "x") for i in (1, 2, 3))
        yield DraftProposed(r, ts, 1, nodes, 1.0)
        yield DraftVerified(r, ts, (1, 2, 3)[: count - 1], (WORD,) * count, 9.0, 4 - count, 1931)


def reply_of(*rounds, cost=COST):
    return fold([*told(*rounds), *([cost] if cost else [])]).reply


def plain(rows):
    return [row.plain.rstrip() for row in rows]


# ---- the plain line ----------------------------------------------------------------------------


def test_a_speed_up_is_against_what_was_measured():
    assert speedup(reply_of((3.0, 4))) == pytest.approx((4 / 2.0) / 50)
    assert speedup(reply_of((3.0, 4), cost=None)) is None


@pytest.mark.parametrize(("end", "words"), [(9.0, "0.5 tokens/s"), (1.1, "40 tokens/s")])
def test_a_slow_reply_is_not_told_as_one_of_no_speed(end, words):
    assert quiet_figures(reply_of((end, 4), cost=None))[0].text == words


def test_plain_decoding_is_not_compared_with_itself():
    events = [STARTED, PlainDecoded(1, 0.1, (WORD,), 9.0, 5), COST]
    assert speedup(fold(events).reply) is None


def test_a_measurement_holds_for_the_reply_before_it_and_those_after():
    later = CostMeasured(1.0, 4000, (1,), (25.0,))
    state = fold([*told((2.0, 2)), COST, *told((2.0, 2)), *told((2.0, 2)), later])
    replies = [message for message in state.messages if message.role == "assistant"]
    assert [reply.cost for reply in replies] == [COST, COST, later]


def test_a_new_chat_keeps_the_line_and_another_model_does_not():
    state = fold([*told((2.0, 2)), COST, ChatCleared()])
    assert state.baseline.cost == COST
    assert fold([SessionOpening("other")], state).baseline.cost is None


def test_a_conversation_is_told_again_with_its_measurements():
    later = CostMeasured(1.0, 4000, (1,), (25.0,))
    end = GenerationFinished(2.0, "stop")
    events = [*told((2.0, 2)), end, COST, *told((2.0, 2)), end, later, *told((2.0, 2)), end]
    assert events_of(fold(events)) == events


def slowdown(state):
    return state.baseline.slowdown(state.reply)


# ---- at the context of the reply ---------------------------------------------------------------

NEAR = CostMeasured(1.0, 274, (1,), (20.0,))  # plain: 50 tokens/s
FAR = CostMeasured(1.0, 3400, (1,), (40.0,))  # plain: 25 tokens/s


def told_at(context, *rounds):
    return [
        replace(event, context=context) if isinstance(event, DraftVerified) else event
        for event in told(*rounds)
    ]


def test_a_reply_is_not_compared_with_a_forward_at_another_context():
    rounds = [(second / 2, 1) for second in range(3, 40)]
    state = fold([NEAR, *told_at(3400, *rounds)])
    assert speedup(state.reply) is None
    assert slowdown(state) is None
    fold([FAR], state)
    assert speedup(state.reply) == pytest.approx(state.reply.stats.generation_tps / 25, rel=0.01)


@pytest.mark.parametrize(
    ("context", "ms"),
    [(10, 20.0), (274, 20.0), (1837, 30.0), (3400, 40.0), (6799, 40.0), (6800, None)],
)
def test_between_two_measurements_the_time_of_a_forward_is_interpolated(context, ms):
    plain = PlainCosts().after(FAR).after(NEAR).at(context)
    assert (plain and 1e3 / plain.tps) == (ms and pytest.approx(ms))


def test_below_some_hundred_tokens_forwards_cost_the_same():
    costs = PlainCosts().after(replace(NEAR, context=30))
    assert costs.at(1000).tps == costs.at(2).tps == 50.0
    assert costs.at(1024) is None


def test_a_later_measurement_takes_the_place_of_those_at_similar_contexts():
    costs = PlainCosts().after(NEAR).after(FAR).after(replace(NEAR, context=500, ms=(10.0,)))
    assert [point.context for point in costs.points] == [500, 3400]


def test_a_reply_is_compared_at_its_middle():
    reply = fold([NEAR, FAR, *told_at(1839, (3.0, 4))]).reply
    assert (reply.plain.context, reply.plain.measured_at) == (1837, (274, 3400))
    assert reply.plain.tps == pytest.approx(1e3 / 30)
    assert plain(speed_rows(reply, 60))[-1] == "─ plain forward @ctx 1.8k, measured @274 and 3.4k"


def test_the_comparison_stored_with_a_reply_is_the_one_that_is_shown_everywhere():
    stored = SpeedupMeasured(2.5, 45.0, 1900, (1931,))
    events = [*told((1.04, 4)), GenerationFinished(1.04, "stop"), COST, stored]
    reply = fold(events).reply
    assert times_plain(reply) == "\u00d72.50 plain"
    assert events_of(fold(events)) == events
    page = render(Recording.of("t", events))
    assert "\u00d72.50 plain" in page
    assert "<p>plain forward, measured @ctx 1.9k: 45.0 tokens/s</p>" in page
    assert "| speed-up | \u00d72.50 plain |" in markdown.render(Recording.of("t", events))


def test_every_figure_of_acceptance_is_one_of_the_statistics():
    reply = reply_of((2.0, 4), (3.0, 1), (3.5, 2))  # of 9 drafted tokens 3 + 0 + 1 were accepted
    assert (reply.stats.acceptance_rate, reply.stats.mean_acceptance_length) == (4 / 9, 1 + 4 / 3)
    assert [p.text for p in reply_figures(reply)][-2:] == ["2.33 tok/round", "44 % accepted"]
    events = list(told((2.0, 4), (3.0, 1), (3.5, 2)))
    page = render(Recording.of("t", events))
    assert "<dd>44%</dd>" in page
    assert "<dd>2.33</dd>" in page
    track = Track("A", events)
    track.show(99.0)
    assert track.stats.mean_acceptance_length == 1 + 4 / 3


# ---- copies of earlier replies -----------------------------------------------------------------


def written(ids, reason="stop"):
    """A greedy reply of these tokens, all in one round, at 100 tokens/s."""
    emit = tuple(EmittedToken(token, f" {token}", "accepted") for token in ids)
    nodes = tuple(
        DraftNode(i, i - 1, token, " a", None, "x") for i, token in enumerate(ids[:-1], 1)
    )
    end = 1.0 + len(ids) / 100
    yield from (TurnStarted("user", "x"), STARTED, PrefillProgress(1.0, 5, 5))
    yield DraftProposed(1, 1.0, 1, nodes, 1.0)
    yield DraftVerified(1, end, tuple(range(1, len(ids))), emit, 9.0, 0, 1931)
    yield GenerationFinished(end, reason)


FIRST = list(range(20))


def test_a_reply_that_the_drafter_has_seen_is_marked_as_a_copy():
    state = fold([COST, *written(FIRST), ReplyDiscarded(), *written(FIRST)])
    assert (state.reply.num_copied, state.reply.is_copy) == (20, True)
    assert times_plain(state.reply) == "\u00d72.00 plain (a copy)"
    assert quiet_figures(state.reply)[0].text == "2.0x faster (a copy)"
    state.reply.plain = None
    assert quiet_figures(state.reply)[0].text == "100 tokens/s (a copy)"


@pytest.mark.parametrize(
    ("ids", "num_copied", "is_copy"),
    [
        ([*range(12), *range(50, 60)], 12, True),  # more than half
        ([*range(9), *range(50, 60)], 9, False),
        ([0, 1, 2, 3], 4, False),  # short replies are alike
        ([9, *FIRST], 0, False),
    ],
)
def test_a_reply_counts_as_a_copy_where_most_of_it_was_written_before(ids, num_copied, is_copy):
    reply = fold([*written(FIRST), ChatCleared(), *written(ids)]).reply
    assert (reply.num_copied, reply.is_copy) == (num_copied, is_copy)


def test_another_drafter_has_seen_no_reply():
    state = fold([*written(FIRST), SessionOpening("t", "other"), SessionReady()])
    assert not fold(written(FIRST), state).reply.is_copy


@pytest.mark.parametrize(
    ("ids", "reason", "replies", "total"),
    [
        (range(40, 50), "stop", "All replies<", "<h1>30 tokens"),
        (FIRST, "stop", "All replies except copies of earlier ones", "<h1>20 tokens"),
        (range(40, 50), "repeating", "All replies except loops", "<h1>20 tokens"),
    ],
)
def test_copies_and_loops_are_left_out_of_averages(ids, reason, replies, total):
    page = render(Recording.of("t", [*written(FIRST), *written(ids, reason)]))
    assert replies in page
    assert total in page


# ---- speed over time ---------------------------------------------------------------------------


def speeds(reply, num_slices):
    return reply.pace.speeds(reply.stats.prefill_s, num_slices)


def test_a_round_is_spread_over_the_time_it_took():
    reply = reply_of((2.0, 4), (3.0, 1))  # 4 tokens in the first second, 1 in the second
    assert speeds(reply, 2) == pytest.approx([4.0, 1.0])
    assert speeds(reply, 4) == pytest.approx([4.0, 4.0, 1.0, 1.0])


@settings(max_examples=30)
@given(
    st.lists(st.tuples(st.floats(0.001, 9), st.integers(1, 4)), min_size=1, max_size=30),
    st.integers(1, 40),
)
def test_no_token_is_lost_between_the_slices(gaps, num_slices):
    ends, now = [], 1.0
    for gap, count in gaps:
        now += gap
        ends.append((now, count))
    reply = reply_of(*ends)
    slice_s = (now - 1.0) / num_slices
    tokens = sum(count for _, count in gaps)
    assert sum(speeds(reply, num_slices)) * slice_s == pytest.approx(tokens)


def test_a_reply_without_time_has_no_speeds():
    assert speeds(reply_of(), 10) == []
    assert speeds(reply_of((1.0, 2)), 10) == []


TIMES = st.floats(0, 2**62)


@settings(max_examples=30)
@given(TIMES, st.lists(st.tuples(TIMES, st.integers(1, 4)), max_size=4))
def test_any_times_that_a_trace_may_hold_are_drawn(prefill, rounds):
    reply = fold([*told(*rounds, prefill=prefill), COST]).reply
    assert len(speed_rows(reply, 37)) == 5


@pytest.mark.parametrize(
    ("values", "drawn"),
    [([8, 4, 0, 12], ["▃  █", "█▅ █"]), ([0.001], [" ", "▁"]), ([], ["", ""])],
)
def test_columns_are_filled_from_below(values, drawn):
    assert columns(values, 2, 12) == drawn


# ---- what is shown -----------------------------------------------------------------------------


def test_an_unmeasured_line_is_said_to_be_so():
    reply = reply_of((2.0, 4), cost=None)
    assert plain(speed_rows(reply, 30))[-1] == "plain forward: not measured yet"
    assert plain(cost_rows(reply, 40)) == ["cost by rows            not measured yet"]
    assert times_plain(reply) == ""


def test_the_line_is_named_with_its_context_and_drawn_at_its_height():
    slow = reply_of((2.0, 4))  # 4 tokens/s against 50
    rows = plain(speed_rows(slow, 20))
    assert rows[0] == "tokens/s 4.0 \u00b7 \u00d70.08 plain"
    assert rows[1] == "▔" * 13 + "   50.0"
    assert rows[3] == "▂" * 13
    assert rows[4] == "─ plain forward, measured @ctx 1.9k"


def test_the_line_crosses_bars_that_are_higher():
    fast = reply_of((1.04, 4))  # 100 tokens/s against 50: the middle of the middle row
    assert [p.text for p in reply_figures(fast)][:2] == ["100.0 tokens/s", "\u00d72.00 plain"]
    rows = speed_rows(fast, 20)
    assert plain(rows)[2] == "─" * 13 + "   50.0"
    assert {span.style for span in rows[2].spans} >= {"$background on $spec-accepted"}


def test_the_cost_of_the_width_in_use_is_marked():
    reply = reply_of((2.0, 4), (3.0, 1))
    assert reply.pace.rows_in_use == 4
    assert plain(cost_rows(reply, 30)) == [
        "cost by rows \u00f7 1 row \u00b7 4 in use",
        "   1  ████      1.00   20.0 ms",
        "   2  ████▍     1.10   22.0 ms",
        "▸  4  █████▎    1.30   26.0 ms",
        "   8  ████████  2.00   40.0 ms",
    ]


def test_the_time_between_replies_is_not_played():
    before = Timeline(make_fake.tree())
    after = Timeline([*make_fake.tree(), COST])
    assert (after.duration, len(after)) == (before.duration, len(before) + 1)


# ---- slower than plain -------------------------------------------------------------------------


def slow_rounds(until):
    return [(float(second), 1) for second in range(2, until)]


def test_the_warning_goes_when_it_is_no_longer_true():
    slow = fold([COST, *told(*slow_rounds(7))])
    assert slowdown(slow) is not None
    spurt = [(6.0 + n / 1e4, 4) for n in range(1, 150)]
    assert slowdown(fold([COST, *told(*slow_rounds(7), *spurt)])) is None
    # a forward here takes longer than the one that the reply was compared with
    fold([replace(COST, ms=(2000.0, *COST.ms[1:]))], slow)
    assert slowdown(slow) is None


def test_five_slow_seconds_are_told_once_in_a_session():
    state = fold([*told((1.01, 1)), COST, *told(*slow_rounds(6))])
    assert slowdown(state) is None
    state = fold([COST, *told(*slow_rounds(7))])
    assert slowdown(state) == pytest.approx(1 - 1 / 50)
    assert slowdown(fold(told(*slow_rounds(9)), state)) is None


def test_a_reply_that_catches_up_is_not_called_slow():
    spurt = CostMeasured(1.0, 1931, (1,), (1000.0,))  # plain: 1 tokens/s
    rounds = [(4.0, 1), (4.5, 4), (6.0, 1), (8.5, 1)]
    state = fold([spurt, *told(*rounds)])
    assert slowdown(state) is None
    assert slowdown(fold([spurt, *told(*rounds, (13.0, 1), (18.0, 1))])) is not None


async def test_a_replay_shows_the_line_of_its_trace_and_does_not_offer_what_it_cannot_do():
    events = [*told(*slow_rounds(9)), COST, *told(*slow_rounds(9))]
    async with replay(events, size=(140, 45)) as driver:
        assert "plain forward" not in driver.shown
        await driver.press("end")
        assert "measured @ctx 1.9k" in driver.shown
        assert (
            driver.shown.count(times_plain(driver.screen.state.reply)) == 4
        )  # header, panel, replies
        assert "guessing makes replies 98 % slower here" in driver.shown
        assert "/k 0" not in driver.shown


async def test_slowness_is_a_quiet_row_with_the_way_out():
    session = ScriptedSession(SessionReady(), *[COST, *told(*slow_rounds(9))])
    async with running(session) as driver:
        assert "guessing makes replies 98 % slower here; /k 0 turns it off" in driver.shown
        assert "!" not in driver.screen.query_one(NoticeRows).render().plain
