"""The pacer of a screen: frames by a timer, panels with them, and neither where nothing happens."""

import pytest

from mlxspec.trace.events import GenerationFailed, GenerationFinished, GenerationStarted
from mlxspec_app.frames import PANELS_PER_S, PANELS_PER_S_AT_REST, FramePacer


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


def test_panels_wait_for_a_frame_while_there_is_work(screen, pacer):
    draw(screen, "frame", "panels", "panels", "frame", "frame")
    assert screen.drawn == ["frame", "frame", "panels", "frame"]


def test_panels_come_at_once_where_no_frame_would_show_anything(screen, pacer):
    screen.is_at_work = False
    draw(screen, "panels")
    assert screen.drawn == ["panels"]


def test_a_frame_that_is_not_allowed_draws_nothing_and_the_panels_come_with_the_next(screen, pacer):
    allowed = iter([False, True])
    pacer.budget.allows_frame = lambda: next(allowed)
    draw(screen, "panels", "frame", "frame")
    assert screen.drawn == ["frame", "panels"]


def test_where_charts_are_too_dear_the_rows_come_alone(screen, pacer):
    pacer.budget.allows_charts = lambda: False
    draw(screen, "panels", "frame")
    assert screen.drawn == ["frame", "rows"]


def test_another_rate_ends_the_timer_before(screen, pacer):
    pacer.draw_at(10)
    assert [timer.interval for timer in screen.timers] == [1 / 30, 1 / PANELS_PER_S, 1 / 10]
    assert [timer.state for timer in screen.timers] == ["stopped", "on", "on"]


def test_frames_rest_until_they_are_woken_and_panels_go_on(screen, pacer):
    pacer.rest()
    assert [timer.state for timer in screen.timers] == ["paused", "on"]
    pacer.wake()
    assert [timer.state for timer in screen.timers] == ["on", "on"]


def test_a_screen_that_is_not_drawn_yet_can_be_woken(screen):
    pacer_of(screen).wake()
    pacer_of(screen).rest()
    assert screen.timers == []


def test_panels_come_seldom_where_nothing_may_move(screen):
    pacer_of(screen).begin_panels(moves=False)
    assert screen.timers[0].interval == 1 / PANELS_PER_S_AT_REST


@pytest.mark.parametrize("end", [GenerationFinished(1.0, "stop"), GenerationFailed(1.0, "no room")])
def test_frames_are_limited_while_a_model_computes_on_the_processor(pacer, end):
    limits = []
    pacer.budget.limit = lambda *, is_shared: limits.append(is_shared)
    for event in (GenerationStarted("t", "d", blas="OpenBLAS"), end, GenerationStarted("t", "d")):
        pacer.handle(event)
    assert limits == [True, False, False]
