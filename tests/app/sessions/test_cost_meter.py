"""Measuring while nothing is asked: when it is due, and that nobody waits for it."""

import threading

import pytest

from mlxspec.budget import CostCurve
from mlxspec.trace.events import (
    CostMeasured,
    DraftNode,
    DraftProposed,
    DraftVerified,
    EmittedToken,
    GenerationFailed,
    GenerationFinished,
    GenerationStarted,
    PlainDecoded,
    SpeedupMeasured,
)
from mlxspec.trace.file import read_trace
from mlxspec_app.conversation.events import SessionNotice, SessionReady
from mlxspec_app.conversation.fold import fold
from mlxspec_app.conversation.orders import Say
from mlxspec_app.sessions.cost_meter import CostMeter
from tests.support.app_driver import Clock
from tests.support.app_live import PATIENCE_S, FakeConversation, FakeModels, Live

CURVE = CostCurve({1: 20.0, 8: 30.0})


def reply(context, ts=3.0):
    word = EmittedToken(1, " a", "plain")
    return PlainDecoded(1, 1.0, (word,), 5.0, context), GenerationFinished(ts, "stop")


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
def clock():
    return Clock()


@pytest.fixture
def meter(clock):
    return CostMeter(clock)


# ---- when it is due ------------------------------------------------------------------------


def test_the_first_reply_that_emits_something_makes_a_measurement_due(meter):
    first, end = reply(100)
    follow(meter, first)
    assert not meter.is_due
    follow(meter, end)
    assert meter.is_due
    other = CostMeter()
    follow(other, GenerationFinished(1.0, "cancelled"))
    assert not other.is_due


@pytest.mark.parametrize(
    ("context", "is_due"), [(101, False), (199, False), (200, True), (51, False), (50, True)]
)
def test_another_context_makes_it_due_again(meter, context, is_due):
    follow(meter, *reply(100))
    meter.note(CURVE.ms)
    assert not meter.is_due
    follow(meter, *reply(context))
    assert meter.is_due == is_due


def test_a_measurement_states_context_and_time_and_holds_for_minutes(meter, clock):
    follow(meter, *reply(100, ts=3.0))
    clock.now += 1.5
    assert meter.note(CURVE.ms) == CostMeasured(4.5, 100, (1, 8), (20.0, 30.0))
    clock.now += 599
    assert not meter.is_due
    clock.now += 2  # other programs come and go
    assert meter.is_due


def test_a_measurement_that_failed_is_not_tried_again_at_once(meter):
    follow(meter, *reply(100))
    meter.give_up()
    follow(meter, *reply(110))
    assert not meter.is_due
    follow(meter, *reply(220))
    assert meter.is_due


# ---- what is compared ----------------------------------------------------------------------


def test_a_reply_is_compared_once_with_plain_decoding_at_its_context(meter):
    follow(meter, *drafted(range(20), 274))
    meter.note(CURVE.ms)  # plain: 50 tokens/s
    assert meter.compare() == SpeedupMeasured(pytest.approx(0.2), 50.0, 264, (274,))
    assert meter.compare() is None
    follow(meter, *drafted(range(30, 50), 3400))  # far from every measurement
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
    follow(meter, *drafted(range(20)), GenerationFailed(1.0, "broken"))
    meter.note(CURVE.ms)
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


# ---- in a session --------------------------------------------------------------------------


class Measured(FakeConversation):
    """A conversation whose forwards go on until they are stopped, or are quick."""

    def __init__(self, on_progress):
        super().__init__(on_progress)
        self.error_of_measuring = None
        self.is_quick = True
        self.started = threading.Event()
        self.num_measured = 0

    def measure_cost(self, *, should_stop):
        self.num_measured += 1
        self.started.set()
        if self.error_of_measuring is not None:
            raise self.error_of_measuring
        if self.is_quick:
            return CURVE
        waited = threading.Event()
        while not should_stop():
            waited.wait(0.001)
        return None


@pytest.fixture
def live(tmp_path):
    models = FakeModels(lambda choice, on_progress: Measured(on_progress))
    live = Live(tmp_path / "t.jsonl", models)
    live.until_a(SessionReady)
    yield live
    live.session.close()


def test_a_reply_is_followed_by_a_measurement_and_the_next_one_of_its_length_is_not(live, tmp_path):
    live.session.send(Say("hi"))
    compared = [live.until_a(SpeedupMeasured)]
    (cost,) = (event for event in live.news if isinstance(event, CostMeasured))
    assert (cost.widths, cost.ms) == ((1, 8), (20.0, 30.0))
    live.session.send(Say("and now"))
    compared.append(live.until_a(SpeedupMeasured))
    live.session.close()
    assert live.conversation.num_measured == 1
    told = list(read_trace(tmp_path / "t.jsonl"))
    assert [event for event in told if isinstance(event, CostMeasured)] == [cost]
    assert [event for event in told if isinstance(event, SpeedupMeasured)] == compared
    assert [reply.measured for reply in fold(told).messages[1::2]] == compared
    assert [one.copied > 0 for one in compared] == [False, True]  # the fake says the same again


def test_a_new_order_ends_a_measurement_at_once_and_it_is_tried_again(live):
    live.conversation.is_quick = False
    live.session.send(Say("hi"))
    assert live.conversation.started.wait(PATIENCE_S)
    assert live.session.busy
    live.conversation.is_quick = True
    live.session.send(Say("and now"))
    live.until_a(CostMeasured)
    assert live.conversation.num_measured == 2
    ends = [type(e) for e in live.news if isinstance(e, GenerationFinished | CostMeasured)]
    assert ends[-2:] == [GenerationFinished, CostMeasured]


def test_closing_ends_a_measurement(live):
    live.conversation.is_quick = False
    live.session.send(Say("hi"))
    assert live.conversation.started.wait(PATIENCE_S)
    live.session.close()
    assert "mlxspec-engine" not in [thread.name for thread in threading.enumerate()]


def test_a_measurement_that_fails_costs_no_reply(live):
    live.conversation.error_of_measuring = MemoryError("too wide")
    live.session.send(Say("hi"))
    notice = live.until_a(SessionNotice)
    assert notice.message == "a plain forward was not measured: MemoryError: too wide"
    assert not any(isinstance(event, GenerationFailed) for event in live.news)
    live.say("and now")
