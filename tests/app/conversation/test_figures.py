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
    PlainDecoded,
    PrefillProgress,
    SpeedupMeasured,
    TurnStarted,
)
from mlxspec.trace.speedup import RoundCosts, TimedRound
from mlxspec.trace.speedup import speedup as measured
from mlxspec.trace.stats import FORCED
from mlxspec_app.conversation.events import (
    ChatCleared,
    ReplyDiscarded,
    SessionOpening,
    SessionReady,
)
from mlxspec_app.conversation.figures import quiet_figures, reply_figures, speed_words
from mlxspec_app.conversation.fold import fold
from mlxspec_app.conversation.messages import Reply
from mlxspec_app.conversation.rounds import Round
from mlxspec_app.conversation.speeds import plain_tps, speedup, timed
from mlxspec_app.conversation.state import ChatState
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
from tests.support.paired_reply import STARTED, paired, true_ratio
from tests.support.scripted_session import ScriptedSession
from tests.traces import make_fake

COST = CostMeasured(9.0, 1931, (1, 2, 4, 8), (20.0, 22.0, 26.0, 40.0))  # plain: 50 tokens/s
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


def test_a_conversation_is_told_again_with_its_measurements():
    later = CostMeasured(1.0, 4000, (1,), (25.0,))
    end = GenerationFinished(2.0, "stop")
    events = [*told((2.0, 2)), end, COST, *told((2.0, 2)), end, later, *told((2.0, 2)), end]
    assert events_of(fold(events)) == events


# ---- a ratio from the rounds themselves ---------------------------------------------------------


def test_a_ratio_is_told_once_enough_rounds_of_both_kinds_were_seen():
    assert speedup(fold(paired(12)).reply) is None
    assert speedup(fold(paired(80)).reply) == pytest.approx(true_ratio(80), rel=0.001)


def test_a_ratio_of_too_much_noise_is_not_told():
    noisy = [TimedRound(3, 2, ms) for ms in (28.0, 32.0) * 4]
    rounds = [*noisy, TimedRound(0, 1, 20.0)] * 4 + noisy
    assert not measured(rounds, RoundCosts().after(rounds)).is_sure
    assert speedup(Reply(timed=rounds)) is None


def test_a_short_reply_is_told_with_what_earlier_ones_took_and_not_with_those_of_another_drafter():
    state = fold([*paired(80), *paired(12, slower=3.0)])
    assert speedup(state.reply) == pytest.approx(true_ratio(12), rel=0.001)
    other = [replace(event, drafter="other") if event == STARTED else event for event in paired(12)]
    assert speedup(fold(other, state).reply) is None


def test_a_long_reply_is_told_whatever_others_took():
    assert speedup(fold([*paired(80, plain_ms=40.0), *paired(80)]).reply) == pytest.approx(
        true_ratio(80), rel=0.001
    )


def test_tokens_that_a_grammar_forced_are_no_gain():
    nodes = (DraftNode(1, 0, 1, " a", None, FORCED), DraftNode(2, 1, 1, " a", None, "table"))
    emit = (replace(WORD, kind="forced"), WORD, replace(WORD, kind="bonus"))
    verdict = DraftVerified(1, 1.0, (1, 2), emit, 9.0, 0, 9)
    both = timed(Round(DraftProposed(1, 1.0, 1, nodes, 1.0), verdict), 30.0)
    assert (both.num_nodes, both.num_tokens) == (2, 2)
    assert timed(Round(DraftProposed(1, 1.0, 1, nodes[:1], 1.0), verdict), 30.0).num_nodes == -1
    assert timed(Round(None, verdict), 30.0).num_nodes == -1  # its draft was not recorded


def test_replies_that_may_share_forwards_have_no_ratio():
    assert speedup(fold(paired(80), ChatState(has_own_forwards=False)).reply) is None


def test_a_recorded_ratio_is_that_of_the_screen_and_of_the_next_reply_on():
    events = [*paired(80), *paired(12, token=2)]
    assert speed_words(fold(events).reply) == "1.3x the speed"
    assert "1.3x the speed" in render(Recording.of("t", events))
    assert "| speed-up | 1.3x the speed |" in markdown.render(Recording.of("t", events))


def test_plain_decoding_is_drawn_at_the_speed_it_had_meanwhile():
    reply = fold(paired(80, slower=2.0)).reply
    assert 1e3 / plain_tps(reply) == pytest.approx(40.0, rel=0.001)
    assert plain(speed_rows(reply, 60))[-1] == "─ plain decoding at the same time"


def test_the_comparison_stored_with_a_reply_is_the_one_that_is_shown_everywhere():
    stored = SpeedupMeasured(2.5, 45.0, 1900, (1931,))
    events = [*told((1.04, 4)), GenerationFinished(1.04, "stop"), COST, stored]
    reply = fold(events).reply
    assert speed_words(reply) == "2.5x the speed"
    assert events_of(fold(events)) == events
    page = render(Recording.of("t", events))
    assert "2.5x the speed" in page
    assert "<p>plain decoding at the same time: 40.0 tokens/s</p>" in page
    assert "| speed-up | 2.5x the speed |" in markdown.render(Recording.of("t", events))


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
    assert speed_words(state.reply) == "2.0x the speed (a copy)"
    assert quiet_figures(state.reply)[0].text == "2.0x the speed (a copy)"
    state.reply.cost = None
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
    assert plain(speed_rows(reply, 30))[-1] == "plain decoding: not measured yet"
    assert speed_words(reply) == ""


def test_the_line_is_named_with_its_context_and_drawn_at_its_height():
    slow = reply_of((2.0, 4))  # 4 tokens/s against 50
    rows = plain(speed_rows(slow, 20))
    assert rows[0] == "tokens/s 4.0 \u00b7 0.1x the speed"
    assert rows[1] == "▔" * 13 + "   50.0"
    assert rows[3] == "▂" * 13
    assert rows[4] == "─ plain decoding at the same time"


def test_the_line_crosses_bars_that_are_higher():
    fast = reply_of((1.04, 4))  # 100 tokens/s against 50: the middle of the middle row
    assert [p.text for p in reply_figures(fast)][:2] == ["100.0 tokens/s", "2.0x the speed"]
    rows = speed_rows(fast, 20)
    assert plain(rows)[2] == "─" * 13 + "   50.0"
    assert {span.style for span in rows[2].spans} >= {"$background on $spec-accepted"}


def test_what_forwards_of_each_width_took_is_that_of_the_reply_and_the_usual_one_is_marked():
    assert plain(cost_rows(fold(paired(8)).reply, 30)) == [
        "cost by rows \u00f7 1 row \u00b7 2 in use",
        "   1  ████████  1.00   20.0 ms",
        "▸  2  ███▋      0.45    9.0 ms",
    ]
    assert plain(cost_rows(reply_of((2.0, 4)), 30))[1] == "▸  4  ████████          9.0 ms"


def test_the_time_between_replies_is_not_played():
    before = Timeline(make_fake.tree())
    after = Timeline([*make_fake.tree(), COST])
    assert (after.duration, len(after)) == (before.duration, len(before) + 1)


# ---- slower than plain -------------------------------------------------------------------------


SLOW, FAST, LOOP = {"num_tokens": 1}, {}, {"num_tokens": 1, "reason": "repeating"}


def told_of(*replies):
    """Replies of 80 rounds with other tokens each: a copy says nothing."""
    return [event for n, kind in enumerate(replies) for event in paired(80, token=n, **kind)]


def slowdown(*replies):
    state = fold([SessionReady(), *told_of(*replies)])
    return state.speeds.slowdown(state.reply)


def test_drafts_are_called_slow_only_where_several_replies_agree():
    assert slowdown(SLOW) is slowdown(SLOW, SLOW) is None
    assert slowdown(SLOW, FAST, SLOW) is None
    assert slowdown(SLOW, SLOW, SLOW) == pytest.approx(1 - true_ratio(80, 1), abs=0.001)
    assert slowdown(SLOW, SLOW, LOOP) is None  # it says nothing about new replies
    assert slowdown(SLOW, SLOW, SLOW, SLOW) is None  # it was told


async def test_slowness_is_a_quiet_row_with_the_way_out():
    events = told_of(SLOW, SLOW, SLOW)
    async with running(ScriptedSession(SessionReady(), *events)) as driver:
        assert "guessing makes replies 30 % slower here; /k 0 turns it off" in driver.shown
        assert "!" not in driver.screen.query_one(NoticeRows).render().plain
    async with replay(events) as driver:
        await driver.press("end")
        assert "guessing makes replies 30 % slower here" in driver.shown
        assert "/k 0" not in driver.shown
