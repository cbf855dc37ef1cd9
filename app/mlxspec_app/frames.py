"""When a screen is drawn: as often as is useful, but less while a model computes on the same CPU.

At the full rate, frames would slow such a model down by a tenth. So the gap between frames grows
with their cost, up to a limit: the text still arrives a few times a second. The panels around the
text are redrawn less often, together with a frame: one redraw costs less than two.
"""

import os
import time
from collections.abc import Callable

from textual.screen import Screen
from textual.timer import Timer

from mlxspec.trace.events import GenerationFailed, GenerationFinished, GenerationStarted
from mlxspec_app.conversation.events import AnyEvent
from mlxspec_app.settings.file import Settings

PANELS_PER_S = 5  # the draft lane then shows a verdict for at least 200 ms
PANELS_PER_S_AT_REST = 1  # with the setting reduced_motion
SHARE_BESIDE_A_MODEL = 0.02  # of one core
_FRAMES_PER_S = 30
_FRAMES_PER_S_OVER_SSH = 15
_LONGEST_GAP_S = 0.5  # however expensive frames are, text arrives twice a second
_CHARTS_EVERY_S = 1.0
_RATE = 0.2  # of the running mean of the cost, which varies: some frames draw charts


def frames_per_s(settings: Settings) -> int:
    """Return the frames per second of the settings, else those for the connection."""
    usual = _FRAMES_PER_S_OVER_SSH if "SSH_CONNECTION" in os.environ else _FRAMES_PER_S
    return settings.frame_rate or usual


class FrameBudget:
    """Limits frames to a share of one core; without a limit at first."""

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        cpu_time: Callable[[], float] = time.thread_time,
    ) -> None:
        self._clock, self._cpu_time = clock, cpu_time
        self._share = 1.0
        self._drawn_at = clock()
        # None: the next frame's cost does not count
        self._cpu_time_before: float | None = cpu_time()
        self._cost_s = 0.0
        self._charted_at = -_CHARTS_EVERY_S

    def limit(self, *, is_shared: bool) -> None:
        """Limit frames from now on if a model shares the processor, else lift the limit.

        Their cost is measured again, but not that of the next one: it lays out a new message, and
        would delay the first words of the reply.
        """
        self._share = SHARE_BESIDE_A_MODEL if is_shared else 1.0
        self._cost_s, self._cpu_time_before = 0.0, None

    def allows_frame(self) -> bool:
        """Return whether a frame may be drawn now; if so, start to measure its cost."""
        now = self._clock()
        if now - self._drawn_at < min(_LONGEST_GAP_S, self._cost_s / self._share):
            return False
        cpu_time = self._cpu_time()
        if self._cpu_time_before is not None:
            self._cost_s += _RATE * (cpu_time - self._cpu_time_before - self._cost_s)
        self._drawn_at, self._cpu_time_before = now, cpu_time
        return True

    def allows_charts(self) -> bool:
        """Return whether this frame may draw charts, its most expensive part; if so, count it."""
        now = self._clock()
        if self._share < 1.0 and now - self._charted_at < _CHARTS_EVERY_S:
            return False
        self._charted_at = now
        return True


class FramePacer:
    """Draws the frames of a screen by a timer, as its budget allows, and panels with them."""

    def __init__(
        self,
        screen: Screen[None],
        is_at_work: Callable[[], bool],
        show_text: Callable[[], None],
        show_panels: Callable[[bool], None],
    ) -> None:
        """`is_at_work` returns whether the next frames can show anything new.

        `show_text` draws a frame. `show_panels` redraws the panels around the text: with charts, or
        only the cheap ones.
        """
        self._screen, self._is_at_work = screen, is_at_work
        self._show_text, self._show_panels = show_text, show_panels
        self.budget = FrameBudget()
        self._frames: Timer | None = None
        self._are_panels_due = False

    def draw_at(self, rate: int) -> None:
        if self._frames is not None:
            self._frames.stop()
        self._frames = self._screen.set_interval(1 / rate, self._frame_time)

    def begin_panels(self, *, moves: bool) -> None:
        """Redraw the panels from now on; less often without `moves`."""
        rate = PANELS_PER_S if moves else PANELS_PER_S_AT_REST
        self._screen.set_interval(1 / rate, self._panels_time)

    def rest(self) -> None:
        """Draw no frames until `wake`: no event will come before the next order."""
        if self._frames is not None:
            self._frames.pause()

    def wake(self) -> None:
        """Draw frames again, after an order or a notice."""
        if self._frames is not None:
            self._frames.resume()

    def handle(self, event: AnyEvent) -> None:
        """Draw less while a model writes on the same processor."""
        if isinstance(event, GenerationStarted):
            self.budget.limit(is_shared=bool(event.blas))
        elif isinstance(event, GenerationFinished | GenerationFailed):
            self.budget.limit(is_shared=False)

    def _frame_time(self) -> None:
        if not self.budget.allows_frame():
            return
        self._show_text()
        if self._are_panels_due:
            self._are_panels_due = False
            self._show_panels(self.budget.allows_charts())

    def _panels_time(self) -> None:
        if self._is_at_work():
            self._are_panels_due = True
        else:
            self._show_panels(True)
