"""The part of a screen that decides when it is drawn.

A timer asks for frames; while a model computes on the same processor, fewer of them come. What
stands around the text is renewed a few times a second, with a frame, as two are dearer than one.
"""

from textual.timer import Timer

from mlxspec_app.frame_budget import FrameBudget
from mlxspec_app.frame_rate import frames_per_s
from mlxspec_app.frames import FrameClock
from mlxspec_app.screens.viewing import ViewingScreen
from mlxspec_app.settings.file import Settings

PANELS_PER_S = 5  # also how long the draft lane holds a verdict at least: 200 ms
PANELS_PER_S_AT_REST = 1  # where the user asked for less motion


class PacingScreen(ViewingScreen):
    """Draws itself in time.

    Attributes:
        frame_clock: Notes how late frames came.
        frame_budget: Says how many there may be.
    """

    def __init__(self) -> None:
        """Make a screen that is not drawn yet."""
        super().__init__()
        self.frame_clock = FrameClock(1 / frames_per_s(Settings()))
        self.frame_budget = FrameBudget()
        self._frames: Timer | None = None
        self._are_panels_due = False

    @property
    def is_at_work(self) -> bool:
        """Whether frames will show anything new."""
        return False

    def tick(self) -> None:
        """Take in what happened since the last frame and show it."""

    def update_rows(self) -> None:
        """Renew what stands around the transcript and is cheap to draw."""

    def draw_at(self, rate: int) -> None:
        """Draw so many frames a second from now on."""
        if self._frames is not None:
            self._frames.stop()
        self.frame_clock = FrameClock(1 / rate)
        self._frames = self.set_interval(1 / rate, self._frame_time)

    def begin_panels(self) -> None:
        """Renew the panels from now on, seldom where less motion is asked for."""
        moves = self.app.animation_level != "none"
        self.set_interval(1 / (PANELS_PER_S if moves else PANELS_PER_S_AT_REST), self._panels_time)

    def rest(self) -> None:
        """Draw no frames until `wake`: nothing will happen before an order."""
        if self._frames is not None:
            self._frames.pause()
            self.frame_clock.pause()

    def wake(self) -> None:
        """Look for news again: an order was given, or something is to be told."""
        if self._frames is not None:
            self._frames.resume()

    def _frame_time(self) -> None:
        self.frame_clock.tick()
        if not self.frame_budget.allows_frame():
            return
        self.tick()
        if not self._are_panels_due:
            return
        self._are_panels_due = False
        if self.frame_budget.allows_charts():
            self.update_panels()
        else:
            self.update_rows()

    def _panels_time(self) -> None:
        if self.is_at_work:
            self._are_panels_due = True
        else:
            self.update_panels()
