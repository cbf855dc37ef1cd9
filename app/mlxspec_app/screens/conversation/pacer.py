"""Decides when a screen is drawn.

A timer requests frames; the frame budget skips some while a model computes on the same processor.
The panels around the text are redrawn a few times a second, together with a frame: one redraw costs
less than two.
"""

from collections.abc import Callable

from textual.screen import Screen
from textual.timer import Timer

from mlxspec.trace.events import GenerationFailed, GenerationFinished, GenerationStarted
from mlxspec_app.conversation.events import AnyEvent
from mlxspec_app.frames import FrameBudget, FrameClock

PANELS_PER_S = 5  # the draft lane then shows a verdict for at least 200 ms
PANELS_PER_S_AT_REST = 1  # with the setting reduced_motion


class FramePacer:
    """Decides when a screen is drawn.

    Attributes:
        clock: Records how late frames came.
        budget: Limits the number of frames.
    """

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
        self.clock = FrameClock(0.0)
        self.budget = FrameBudget()
        self._frames: Timer | None = None
        self._are_panels_due = False

    def draw_at(self, rate: int) -> None:
        """Draw `rate` frames a second from now on."""
        if self._frames is not None:
            self._frames.stop()
        self.clock = FrameClock(1 / rate)
        self._frames = self._screen.set_interval(1 / rate, self._frame_time)

    def begin_panels(self, *, moves: bool) -> None:
        """Redraw the panels from now on; less often without `moves`."""
        rate = PANELS_PER_S if moves else PANELS_PER_S_AT_REST
        self._screen.set_interval(1 / rate, self._panels_time)

    def rest(self) -> None:
        """Draw no frames until `wake`: no event will come before the next order."""
        if self._frames is not None:
            self._frames.pause()
            self.clock.pause()

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
        self.clock.tick()
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
