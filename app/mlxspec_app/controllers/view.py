"""What the reader chose to see: the ink of the text, and the figures beside it."""

from collections.abc import Callable
from typing import Protocol

from mlxspec_app.conversation.inks import INKS, Ink, ink_named, next_ink

STATS_FROM_WIDTH = 100
STATS_BY_DEFAULT_FROM_WIDTH = 140


class Told(Protocol):
    """How the reader is told something."""

    def __call__(self, message: str, *, title: str = "", timeout: float | None = None) -> None:
        """Say something for so many seconds."""


class InkChoice:
    """Colours the text by one of its properties.

    Attributes:
        ink: What the colours say.
    """

    def __init__(self, show: Callable[[Ink], None], tell: Told) -> None:
        """Begin with the usual ink, which is not shown yet.

        Args:
            show: Draws the text in an ink.
            tell: Says what an ink means.
        """
        self.ink = INKS[0]
        self._show, self._tell = show, tell

    def use(self, name: str) -> None:
        """Draw in the ink that a setting names."""
        self._use(ink_named(name))

    def choose(self, name: str = "") -> None:
        """Draw in another ink, the next one where none is named, and say what it means."""
        self._use(ink_named(name) if name else next_ink(self.ink))
        self._tell(self.ink.meaning, title=f"ink: {self.ink.name}", timeout=2)

    def _use(self, ink: Ink) -> None:
        self.ink = ink
        self._show(ink)


class StatsChoice:
    """Shows the figures where there is room: unasked where there is plenty."""

    def __init__(self) -> None:
        """Go by the room alone until the reader says something."""
        self._wanted: bool | None = None

    def fits(self, width: int) -> bool:
        """Return whether figures have room in so many columns."""
        return width >= STATS_FROM_WIDTH

    def is_shown(self, width: int) -> bool:
        """Return whether the figures are shown in so many columns."""
        wanted = width >= STATS_BY_DEFAULT_FROM_WIDTH if self._wanted is None else self._wanted
        return wanted and self.fits(width)

    def toggle(self, width: int) -> None:
        """Show the figures, or hide them, whatever the width from now on."""
        self._wanted = not self.is_shown(width)
