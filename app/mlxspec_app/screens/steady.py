"""A screen that holds still when the terminal changes its size quickly.

Laying out for a size makes Textual tell the screen that it has this size, and the screen lays
itself out for every size that it is told. When two sizes are on their way at once, each brings the
other back, without end. So a size that the terminal no longer has is passed over.
"""

from typing import TypeVar

from textual import on
from textual.events import Resize
from textual.screen import ModalScreen, Screen

Result = TypeVar("Result")


class SteadyScreen(Screen[Result]):
    """The base of a screen of the app."""

    @on(Resize)
    def _pass_over_old_sizes(self, event: Resize) -> None:
        if event.size != self.app.size and not self.app.is_inline:
            event.prevent_default()


class SteadyModal(ModalScreen[Result], SteadyScreen[Result]):
    """The base of what lies over a screen."""
