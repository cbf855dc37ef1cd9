"""A screen whose reader decides what is seen: the ink, the panels, and the place in the text."""

from typing import ClassVar, Literal

from textual.widgets import Static

from mlxspec_app.app_choices import FEW_ROWS
from mlxspec_app.conversation.inks import INKS, Ink, ink_named, next_ink
from mlxspec_app.screens.reading import ReadingScreen
from mlxspec_app.widgets.chat.transcript import Transcript
from mlxspec_app.widgets.draft.tree_panel import TreePanel
from mlxspec_app.widgets.figures.stats_panel import StatsPanel

STATS_FROM_WIDTH = 100
STATS_BY_DEFAULT_FROM_WIDTH = 140


class ViewingScreen(ReadingScreen):
    """Shows and hides what stands around the transcript.

    Attributes:
        FOLLOW_KEYS: How to follow the newest text again, in a few words.
        ink: What the colours of the text say.
    """

    FOLLOW_KEYS: ClassVar[str] = "Ctrl+End or G"
    ink: Ink = INKS[0]
    _stats_wanted: bool | None = None
    _has_few_rows = False

    def update_panels(self) -> None:
        """Renew what stands around the transcript."""

    def on_resize(self) -> None:
        self._place_stats()
        has_few, self._has_few_rows = self._has_few_rows, self.size.height < FEW_ROWS
        if self._has_few_rows and not has_few:
            self.notify(f"keys and drafts need {FEW_ROWS} rows", timeout=3)

    def action_ink(self, name: str) -> None:
        self._set_ink(ink_named(name) if name else next_ink(self.ink))

    def action_next_ink(self) -> None:
        self._set_ink(next_ink(self.ink))

    def _set_ink(self, ink: Ink) -> None:
        self.use_ink(ink)
        self.notify(ink.meaning, title=f"ink: {ink.name}", timeout=2)

    def use_ink(self, ink: Ink) -> None:
        """Colour the text by an ink."""
        self.ink = ink
        self.query_one(Transcript).set_ink(ink)

    def action_toggle_stats(self) -> None:
        if self.size.width < STATS_FROM_WIDTH:
            self.notify(f"the statistics need {STATS_FROM_WIDTH} columns", timeout=3)
            return
        self._stats_wanted = not self.query_one(StatsPanel).has_class("-shown")
        self._place_stats()

    def action_toggle_tree(self, view: str = "") -> None:
        self.query_one(TreePanel).toggle(view)
        self.update_panels()

    def action_scroll(self, where: Literal["up", "down", "end"]) -> None:
        self.query_one(Transcript).turn(where)
        self.call_after_refresh(self.update_panels)

    def action_read_back(self) -> None:
        self.action_scroll("up")

    def action_read_on(self) -> None:
        self.action_scroll("down")

    def action_follow(self) -> None:
        self.action_scroll("end")

    def show_unseen(self, unseen: int) -> None:
        """Say how many tokens arrived below what is in view."""
        pill = self.query_one("#pill", Static)
        pill.set_class(unseen > 0, "-shown")
        if unseen:
            pill.update(f" ↓ {unseen} new tokens · {self.FOLLOW_KEYS} ")

    def _place_stats(self) -> None:
        wanted = self._stats_wanted
        if wanted is None:
            wanted = self.size.width >= STATS_BY_DEFAULT_FROM_WIDTH
        self.query_one(StatsPanel).set_class(
            wanted and self.size.width >= STATS_FROM_WIDTH, "-shown"
        )
        self.call_after_refresh(self.update_panels)
