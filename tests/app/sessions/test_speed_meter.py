"""The comparison of each reply with plain decoding."""

import pytest

from mlxspec.trace.events import (
    DraftNode,
    DraftProposed,
    DraftVerified,
    EmittedToken,
    GenerationFailed,
    GenerationFinished,
    GenerationStarted,
    SpeedupMeasured,
)
from mlxspec.trace.file import read_trace
from mlxspec_app.conversation.events import SessionReady
from mlxspec_app.conversation.fold import fold
from mlxspec_app.conversation.orders import Say
from mlxspec_app.sessions.speed_meter import SpeedMeter
from tests.support.app_live import Live
from tests.support.paired_reply import paired, true_ratio


def drafted(ids, context=100, reason="stop"):
    """A greedy reply of these tokens at 10 tokens/s, in one round with a draft."""
    emit = tuple(EmittedToken(token, " a", "accepted") for token in ids)
    return (
        GenerationStarted("t", "d"),
        DraftProposed(1, 0.0, 1, (DraftNode(1, 0, 1, " a", None, "x"),), 1.0),
        DraftVerified(1, len(ids) / 10, (1,), emit, 5.0, 0, context),
        GenerationFinished(len(ids) / 10, reason),
    )


def follow(meter, *events):
    for event in events:
        meter.record(event)


@pytest.fixture
def meter():
    return SpeedMeter()


def test_a_reply_is_compared_once_and_a_short_one_by_what_the_one_before_it_took(meter):
    follow(meter, *paired(80))
    assert meter.compare() == SpeedupMeasured(pytest.approx(true_ratio(80), rel=0.001))
    assert meter.compare() is None
    follow(meter, *paired(12, token=2))
    assert meter.compare() == SpeedupMeasured(pytest.approx(true_ratio(12), rel=0.001))
    meter.forget_replies()
    follow(meter, *paired(12, token=2))
    assert meter.compare() is None


def test_a_copy_of_an_earlier_reply_is_one_for_the_drafter_that_has_seen_it(meter):
    for expected in (None, 20):
        follow(meter, *drafted(range(20)))
        compared = meter.compare()
        assert (compared and compared.copied) == expected
    meter.forget_replies()
    follow(meter, *drafted(range(20)))
    assert meter.compare() is None


def test_a_reply_that_failed_is_not_compared(meter):
    *rounds, _ = paired(80)
    follow(meter, *rounds, GenerationFailed(4.0, "broken"))
    assert meter.compare() is None


@pytest.mark.parametrize(
    ("tokens", "reason", "counts"),
    [
        ([*range(12), *range(90, 108)], "stop", True),  # a common beginning is no copy
        ([*range(15), *range(90, 105)], "stop", False),
        ([*range(7)], "stop", True),
        ([*range(50, 90)], "repeating", False),
        ([*range(50, 90)], "stop", True),
    ],
)
def test_a_copy_and_a_loop_say_nothing_about_other_replies(meter, tokens, reason, counts):
    follow(meter, *drafted(range(40)))
    meter.compare()
    follow(meter, *drafted(tokens, 100, reason))
    meter.compare()
    assert meter.counts == counts


def test_a_chat_records_the_comparison_of_each_reply(tmp_path):
    live = Live(tmp_path / "t.jsonl")
    live.until_a(SessionReady)
    live.conversation._events = lambda text, should_stop: paired(80)
    compared = []
    for text in ("hi", "and now"):
        live.session.send(Say(text))
        compared.append(live.until_a(SpeedupMeasured))
    live.session.close()
    told = list(read_trace(tmp_path / "t.jsonl"))
    assert [event for event in told if isinstance(event, SpeedupMeasured)] == compared
    assert [reply.measured for reply in fold(told).messages[1::2]] == compared
    assert [one.copied > 0 for one in compared] == [False, True]  # the fake says the same again
