"""The definition of a figure beside it: by a key, or under the pointer while it rests there."""

from collections.abc import Iterable

from textual import events
from textual.geometry import Region
from textual.widget import Widget

from mlxspec_app.conversation.definitions import DEFINITIONS, Definition, definitions_in


class Explained(Widget):
    """A widget whose rows explain the figures in them.

    A subclass draws text with figures; the tooltip follows the row under the pointer.
    """

    def on_mouse_move(self, event: events.MouseMove) -> None:
        """Explain the row under the pointer."""
        found = self.definitions(Region(0, event.y, self.size.width, 1))
        self.tooltip = "\n".join(f"{name}: {meaning}" for name, meaning, *_ in found) or None

    def definitions(self, region: Region) -> list[Definition]:
        """Return the definitions of the figures in some of its rows."""
        return definitions_in("\n".join(row.text for row in self.render_lines(region)))


def explained_in(widgets: Iterable[Explained], view: Region) -> list[Definition]:
    """Return the definitions of the figures that widgets show inside a part of the screen."""
    found = {
        each
        for widget in widgets
        if widget.region.overlaps(view)
        for each in widget.definitions(widget.size.region)
    }
    return [each for each in DEFINITIONS if each in found]
