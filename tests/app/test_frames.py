"""Frames by a timer, panels with them: as many as they may cost beside a model on the processor."""

import pytest

from mlxspec.trace.events import (
    GenerationFailed,
    GenerationFinished,
    GenerationStarted,
    TurnStarted,
)
from mlxspec_app.conversation.events import SessionReady
from mlxspec_app.frames import (
    PANELS_PER_S,
    PANELS_PER_S_AT_REST,
    SHARE_BESIDE_A_MODEL,
    FrameBudget,
    FramePacer,
)
from tests.support.app_driver import running
from tests.support.scripted_session import ScriptedSession

FRAME_S = 1 / 30


class Machine:
    """A thread on which some time passes and frames cost processor time."""

    def __init__(self):
        self.now = self.cpu_time = 0.0

    def draw(self, budget, seconds, cost_s):
        """Offer a frame at every frame's time; return how many were drawn."""
        drawn = 0
        for _ in range(round(seconds / FRAME_S)):
            self.now += FRAME_S
            if budget.allows_frame():
                drawn += 1
                self.cpu_time += cost_s
        return drawn


@pytest.fixture
def machine():
    return Machine()


@pytest.fixture
def budget(machine):
    return FrameBudget(lambda: machine.now, lambda: machine.cpu_time)


def test_where_nothing_is_shared_every_frame_is_drawn(machine, budget):
    assert machine.draw(budget, 10.0, cost_s=0.02) == 300


@pytest.mark.parametrize("cost_s", [0.001, 0.004, 0.01])
def test_beside_a_model_frames_keep_to_their_share(machine, budget, cost_s):
    budget.limit(is_shared=True)
    machine.draw(budget, 60.0, cost_s)
    assert machine.cpu_time <= SHARE_BESIDE_A_MODEL * 60.0 * 1.05
    assert machine.cpu_time >= SHARE_BESIDE_A_MODEL * 60.0 * 0.4


def test_however_dear_frames_are_some_come(machine, budget):
    budget.limit(is_shared=True)
    assert 18 <= machine.draw(budget, 10.0, cost_s=0.4) <= 21


def test_what_was_drawn_before_a_reply_does_not_delay_its_first_words(machine, budget):
    machine.draw(budget, 1.0, cost_s=0.4)
    budget.limit(is_shared=True)
    assert machine.draw(budget, 2 * FRAME_S, cost_s=0.002) == 2


def test_the_limit_ends_with_its_reason(machine, budget):
    budget.limit(is_shared=True)
    machine.draw(budget, 1.0, cost_s=0.01)
    budget.limit(is_shared=False)
    machine.draw(budget, 1.0, cost_s=0.01)
    assert machine.draw(budget, 10.0, cost_s=0.01) == 300


async def test_a_model_on_the_processor_limits_the_frames_of_its_chat():
    session, asked = ScriptedSession(SessionReady()), []
    async with running(session) as driver:
        driver.screen.pacer.budget.limit = lambda **how: asked.append(how)
        session.news += [TurnStarted("user", "hi"), GenerationStarted("t", "d", blas="OpenBLAS")]
        await driver.settle()
    assert asked == [{"is_shared": True}]


def test_charts_come_once_a_second_beside_a_model_and_always_else(machine, budget):
    def charts(seconds):
        drawn = 0
        for _ in range(round(seconds * 10)):
            machine.now += 0.1
            drawn += budget.allows_charts()
        return drawn

    assert charts(2.0) == 20
    budget.limit(is_shared=True)
    assert 4 <= charts(5.0) <= 5


class FakeTimer:
    def __init__(self, interval, call):
        self.interval, self.call, self.state = interval, call, "on"

    def stop(self):
        self.state = "stopped"

    def pause(self):
        self.state = "paused"

    def resume(self):
        self.state = "on"


class FakeScreen:
    def __init__(self):
        self.is_at_work, self.drawn, self.timers = True, [], []

    def draw(self):
        self.drawn.append("frame")

    def draw_panels(self, charts):
        self.drawn.append("panels" if charts else "rows")

    def set_interval(self, interval, callback):
        self.timers.append(FakeTimer(interval, callback))
        return self.timers[-1]


@pytest.fixture
def screen():
    return FakeScreen()


def pacer_of(screen):
    return FramePacer(screen, lambda: screen.is_at_work, screen.draw, screen.draw_panels)


@pytest.fixture
def pacer(screen):
    pacer = pacer_of(screen)
    pacer.budget.allows_frame = pacer.budget.allows_charts = lambda: True
    pacer.draw_at(30)
    pacer.begin_panels(moves=True)
    return pacer


def draw(screen, *names):
    frames, panels = screen.timers
    for name in names:
        {"frame": frames, "panels": panels}[name].call()


@pytest.mark.parametrize(
    ("is_at_work", "has_charts", "come", "drawn"),
    [
        (True, True, "frame panels panels frame frame", "frame frame panels frame"),
        (True, False, "panels frame", "frame rows"),
        (False, True, "panels", "panels"),
    ],
    ids=["with the next frame", "without charts that are too dear", "at once without frames"],
)
def test_panels_come(screen, pacer, is_at_work, has_charts, come, drawn):
    screen.is_at_work = is_at_work
    pacer.budget.allows_charts = lambda: has_charts
    draw(screen, *come.split())
    assert screen.drawn == drawn.split()


def test_a_frame_that_is_not_allowed_draws_nothing_and_the_panels_come_with_the_next(screen, pacer):
    allowed = iter([False, True])
    pacer.budget.allows_frame = lambda: next(allowed)
    draw(screen, "panels", "frame", "frame")
    assert screen.drawn == ["frame", "panels"]


def test_another_rate_ends_the_timer_before(screen, pacer):
    pacer.draw_at(10)
    assert [timer.interval for timer in screen.timers] == [1 / 30, 1 / PANELS_PER_S, 1 / 10]
    assert [timer.state for timer in screen.timers] == ["stopped", "on", "on"]


def test_frames_rest_until_they_are_woken_and_panels_go_on(screen, pacer):
    pacer.rest()
    assert [timer.state for timer in screen.timers] == ["paused", "on"]
    pacer.wake()
    assert [timer.state for timer in screen.timers] == ["on", "on"]


def test_panels_come_seldom_where_nothing_may_move_on_a_screen_that_can_be_woken_early(screen):
    pacer = pacer_of(screen)
    pacer.wake()
    pacer.rest()
    assert screen.timers == []
    pacer.begin_panels(moves=False)
    assert screen.timers[0].interval == 1 / PANELS_PER_S_AT_REST


@pytest.mark.parametrize("end", [GenerationFinished(1.0, "stop"), GenerationFailed(1.0, "no room")])
def test_frames_are_limited_while_a_model_computes_on_the_processor(pacer, end):
    limits = []
    pacer.budget.limit = lambda *, is_shared: limits.append(is_shared)
    for event in (GenerationStarted("t", "d", blas="OpenBLAS"), end, GenerationStarted("t", "d")):
        pacer.handle(event)
    assert limits == [True, False, False]
