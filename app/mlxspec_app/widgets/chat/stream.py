"""A column of widgets that grows at its end; the cost of a scroll does not depend on its length.

In each layout, Textual processes every child of a scrolling container; this column passes only the
children near the view. It follows the newest text, or keeps one widget in its row.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from textual.containers import VerticalScroll
from textual.geometry import Region, Size
from textual.layout import DockArrangeResult, WidgetPlacement
from textual.scrollbar import ScrollBar
from textual.selection import Selection
from textual.widget import AwaitMount, Widget


@dataclass(frozen=True)
class _Hold:
    """A widget that must stay in its row of the view."""

    widget: Widget
    top: int  # its first row, relative to the first row in view
    height: int  # in rows, when it was held

    def scroll_for(self, region: Region) -> int:
        """Return the scroll offset in rows at which the widget, now at `region`, does not move."""
        if self.top >= 0 or not self.height:
            return region.y - self.top
        # Its start is above the view and its height may differ: keep the share that is above.
        return region.y + round(-self.top * region.height / self.height)


class Stream(VerticalScroll, can_focus=False):
    """Follows the newest text until the reader scrolls away, and again once back at the end."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._left_end = False
        self._held: _Hold | None = None
        self._placements: Sequence[WidgetPlacement] = ()
        self._arranged_width = 0
        self._selecting_text = False

    @property
    def is_following(self) -> bool:
        """Whether new text scrolls into view automatically."""
        return not self._left_end or self.max_scroll_y == 0

    def on_mount(self) -> None:
        self.watch(self, "show_vertical_scrollbar", self._anchor_when_full)
        self.watch(self.screen, "selections", self._place_all_while_selecting)

    def mount(
        self,
        *widgets: Widget,
        before: int | str | Widget | None = None,
        after: int | str | Widget | None = None,
    ) -> AwaitMount:
        if not self.is_attached:  # the app is closing, but queued messages still arrive
            return AwaitMount(self, [])
        return super().mount(*widgets, before=before, after=after)

    def follow(self) -> None:
        self._held = None
        self._anchor_when_full(self.show_vertical_scrollbar)

    def turn(self, where: Literal["up", "down", "end"]) -> None:
        if where == "up":
            self.scroll_page_up(animate=False)
        elif where == "down":
            self.scroll_page_down(animate=False)
        else:
            self.follow()

    def release_anchor(self) -> None:
        super().release_anchor()
        self._left_end = True

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        self._held = None
        if self.is_vertical_scroll_end:
            self._left_end = False

    def arrange(self, size: Size, optimal: bool = False) -> DockArrangeResult:
        if size.width != self._arranged_width and not self.is_following and self._held is None:
            first = self.first_in_view()
            self._held = self._hold_of(first) if first is not None else None
        self._arranged_width = size.width
        whole = super().arrange(size, optimal)
        self._placements = whole.placements
        if self._held is not None:
            self._keep(self._held, whole.total_region.bottom - size.height)
        if self._selecting_text:
            return whole
        return DockArrangeResult(
            self._near(size.height), whole.widgets, whole.scroll_spacing, whole.spatial_map
        )

    def region_of(self, widget: Widget) -> Region | None:
        """Return the region of a child in the column; None before its first layout."""
        return next((p.region for p in self._placements if p.widget is widget), None)

    def hold(self, widget: Widget) -> None:
        """Keep a widget in its row of the view until the reader scrolls; its height may change."""
        hold = self._hold_of(widget)
        if hold is not None:
            self.release_anchor()
            self._held = hold

    def first_in_view(self) -> Widget | None:
        """Return the first child that is at least partly in view."""
        top = round(self.scroll_y)
        return next((p.widget for p in self._placements if p.region.bottom > top), None)

    def _hold_of(self, widget: Widget) -> _Hold | None:
        region = self.region_of(widget)
        if region is None:
            return None
        return _Hold(widget, region.y - round(self.scroll_y), region.height)

    def _keep(self, hold: _Hold, last_row: int) -> None:
        region = self.region_of(hold.widget)
        if region is None:
            return
        row = max(0, min(hold.scroll_for(region), last_row))
        # As Textual does for an anchor: set the offset within this layout, so no scroll is visible.
        self.set_reactive(Widget.scroll_y, row)
        self.set_reactive(Widget.scroll_target_y, row)
        self.vertical_scrollbar.set_reactive(ScrollBar.position, row)
        if row == last_row:
            self.call_after_refresh(self._follow_from_end)

    def _follow_from_end(self) -> None:
        if self.is_vertical_scroll_end:
            self.follow()

    def _near(self, height: int) -> list[WidgetPlacement]:
        """Return the placements in view, one screen above and below, and the last screen."""
        top = round(self.scroll_y)
        end = self._placements[-1].region.bottom if self._placements else 0
        first, after = self._between(top - height, top + 2 * height)
        last, _ = self._between(end - height, end)
        return [*self._placements[first:after], *self._placements[max(after, last) :]]

    def _between(self, top: int, bottom: int) -> tuple[int, int]:
        """Return the range [first, after) of the placements in the rows `top` to `bottom`."""
        first = bisect_right(self._placements, top, key=lambda p: p.region.bottom)
        return first, bisect_left(self._placements, bottom, key=lambda p: p.region.y)

    def _place_all_while_selecting(self, selections: dict[Widget, Selection]) -> None:
        # Textual needs the regions of all widgets to find those between the ends of a selection.
        if bool(selections) != self._selecting_text:
            self._selecting_text = bool(selections)
            self.refresh(layout=True)

    def _anchor_when_full(self, full: bool) -> None:
        if self._held is not None:  # what was unfolded in a short conversation stays in its row
            return
        # Anchored, a short conversation would be at the bottom, and jump at the first scroll.
        self._left_end = False
        self.anchor(full)
