"""Frames beside a model that computes on the same processor: as many as they may cost."""

import pytest

from mlxspec.trace.events import GenerationFailed, GenerationStarted, TurnStarted
from mlxspec_app.conversation.events import SessionReady
from mlxspec_app.frames import SHARE_BESIDE_A_MODEL, FrameBudget
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


@pytest.mark.parametrize(("blas", "is_shared"), [("OpenBLAS", True), ("", False)])
async def test_a_model_on_the_processor_limits_the_frames_of_its_chat(blas, is_shared):
    session = ScriptedSession(SessionReady())
    async with running(session) as driver:
        asked = []
        driver.screen.pacer.budget.limit = lambda **how: asked.append(how)
        session.news += [TurnStarted("user", "hi"), GenerationStarted("t", "d", blas=blas)]
        await driver.settle()
        assert asked == [{"is_shared": is_shared}]
        session.news.append(GenerationFailed(0.0, "no room"))
        await driver.settle()
        assert asked[1:] == [{"is_shared": False}]


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
