"""What the user chose to see: the ink of the text, and the statistics beside it."""

from collections.abc import Callable
from typing import Protocol

from mlxspec_app.conversation.inks import INKS, Ink, ink_named, next_ink

STATS_FROM_WIDTH = 100
STATS_BY_DEFAULT_FROM_WIDTH = 140


class Notify(Protocol):
    """A function that shows a notice."""

    def __call__(self, message: str, *, title: str = "", timeout: float | None = None) -> None:
        """Show a notice for `timeout` seconds; None for the usual time."""


class InkChoice:
    """Selects the ink of the text.

    Attributes:
        ink: The ink in use.
    """

    def __init__(self, show: Callable[[Ink], None], notify: Notify) -> None:
        """Begin with the default ink, without drawing it.

        Args:
            show: Draws the text in an ink.
            notify: Shows a notice.
        """
        self.ink = INKS[0]
        self._show, self._notify = show, notify

    def use(self, name: str) -> None:
        """Use the ink of this name."""
        self._use(ink_named(name))

    def choose(self, name: str = "") -> None:
        """Use the named ink, else the next one, and show what it means."""
        self._use(ink_named(name) if name else next_ink(self.ink))
        self._notify(self.ink.meaning, title=f"ink: {self.ink.name}", timeout=2)

    def _use(self, ink: Ink) -> None:
        self.ink = ink
        self._show(ink)


class StatsChoice:
    """Decides whether the statistics are shown: by the width, until the user decides."""

    def __init__(self) -> None:
        """Decide by the width alone until `toggle`."""
        self._choice: bool | None = None

    def fits(self, width: int) -> bool:
        """Return whether the statistics fit a terminal of `width` columns."""
        return width >= STATS_FROM_WIDTH

    def is_shown(self, width: int) -> bool:
        """Return whether the statistics are shown at a width of `width` columns."""
        is_chosen = width >= STATS_BY_DEFAULT_FROM_WIDTH if self._choice is None else self._choice
        return is_chosen and self.fits(width)

    def toggle(self, width: int) -> None:
        """Show or hide the statistics; from now on the width no longer decides."""
        self._choice = not self.is_shown(width)
