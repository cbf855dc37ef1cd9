"""Screens that survive quick changes of the terminal's size, and the dialogs over them.

A layout makes Textual send the screen a resize event, and each resize event starts a layout. If
events of two sizes are queued at once, each causes the other again, without end. So these screens
ignore a size that the terminal no longer has.
"""

from typing import ClassVar, TypeVar

from textual import getters, on
from textual.binding import Binding, BindingType
from textual.events import Resize
from textual.screen import ModalScreen, Screen

from mlxspec_app.app import MlxspecApp

Result = TypeVar("Result")


class SteadyScreen(Screen[Result]):
    """The base of all screens of the app."""

    app = getters.app(MlxspecApp)

    @on(Resize)
    def _pass_over_old_sizes(self, event: Resize) -> None:
        if event.size != self.app.size and not self.app.is_inline:
            event.prevent_default()


class SteadyModal(ModalScreen[Result], SteadyScreen[Result]):
    """The base of all dialogs over a screen; Ctrl+C closes one with the result None."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+c", "dismiss", "Back", show=False, priority=True),
    ]


class Dialog(SteadyModal[Result]):
    """A box over a screen."""
