"""When a screen is drawn.

A timer asks for frames; while a model computes on the same processor, fewer of them come. What
stands around the text is renewed a few times a second, with a frame, as two are dearer than one.
"""

from collections.abc import Callable
from typing import Protocol

from mlxspec.trace.events import Event, GenerationFailed, GenerationFinished, GenerationStarted
from mlxspec_app.conversation.session import SessionEvent
from mlxspec_app.frames import FrameBudget, FrameClock

PANELS_PER_S = 5  # also how long the draft lane holds a verdict at least: 200 ms
PANELS_PER_S_AT_REST = 1  # where the user asked for less motion


class Ticker(Protocol):
    """A timer."""

    def stop(self) -> None:
        """End."""

    def pause(self) -> None:
        """Call nothing until `resume`."""

    def resume(self) -> None:
        """Go on."""


class Drawn(Protocol):
    """What is drawn in time: a screen."""

    @property
    def is_at_work(self) -> bool:
        """Whether frames will show anything new."""

    def tick(self) -> None:
        """Take in what happened since the last frame and show it."""

    def update_panels(self) -> None:
        """Renew what stands around the text."""

    def update_rows(self) -> None:
        """Renew what stands around the text and is cheap to draw."""

    def set_interval(self, interval: float, callback: Callable[[], None]) -> Ticker:
        """Call something every so many seconds."""


class FramePacer:
    """Has a screen drawn.

    Attributes:
        clock: Notes how late frames came.
        budget: Says how many there may be.
    """

    def __init__(self, screen: Drawn) -> None:
        """Draw nothing yet."""
        self._screen = screen
        self.clock = FrameClock(0.0)
        self.budget = FrameBudget()
        self._frames: Ticker | None = None
        self._are_panels_due = False

    def draw_at(self, rate: int) -> None:
        """Draw so many frames a second from now on."""
        if self._frames is not None:
            self._frames.stop()
        self.clock = FrameClock(1 / rate)
        self._frames = self._screen.set_interval(1 / rate, self._frame_time)

    def begin_panels(self, *, moves: bool) -> None:
        """Renew the panels from now on, seldom where nothing shall move."""
        rate = PANELS_PER_S if moves else PANELS_PER_S_AT_REST
        self._screen.set_interval(1 / rate, self._panels_time)

    def rest(self) -> None:
        """Draw no frames until `wake`: nothing will happen before an order."""
        if self._frames is not None:
            self._frames.pause()
            self.clock.pause()

    def wake(self) -> None:
        """Look for news again: an order was given, or something is to be told."""
        if self._frames is not None:
            self._frames.resume()

    def take_in(self, event: Event | SessionEvent) -> None:
        """Leave the processor to a model that computes on it, while it writes."""
        if isinstance(event, GenerationStarted):
            self.budget.limit(is_shared=bool(event.blas))
        elif isinstance(event, GenerationFinished | GenerationFailed):
            self.budget.limit(is_shared=False)

    def _frame_time(self) -> None:
        self.clock.tick()
        if not self.budget.allows_frame():
            return
        self._screen.tick()
        if not self._are_panels_due:
            return
        self._are_panels_due = False
        if self.budget.allows_charts():
            self._screen.update_panels()
        else:
            self._screen.update_rows()

    def _panels_time(self) -> None:
        if self._screen.is_at_work:
            self._are_panels_due = True
        else:
            self._screen.update_panels()
