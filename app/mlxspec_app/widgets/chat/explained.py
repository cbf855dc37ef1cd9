"""The definitions of the figures on the screen: a key lists them, a tooltip those of a row."""

from collections.abc import Iterable

from textual import events
from textual.geometry import Region
from textual.widget import Widget

from mlxspec_app.conversation.figures import DEFINITIONS, Definition, definitions_in


class Explained(Widget):
    """Base of widgets that draw figures: a tooltip defines those in the row under the pointer."""

    def on_mouse_move(self, event: events.MouseMove) -> None:
        found = self.definitions(Region(0, event.y, self.size.width, 1))
        self.tooltip = "\n".join(f"{name}: {meaning}" for name, meaning, *_ in found) or None

    def definitions(self, region: Region) -> list[Definition]:
        return definitions_in("\n".join(row.text for row in self.render_lines(region)))


def explained_in(widgets: Iterable[Explained], view: Region) -> list[Definition]:
    """Return the definitions of the figures in the widgets in `view`, in glossary order."""
    found = {
        each
        for widget in widgets
        if widget.region.overlaps(view)
        for each in widget.definitions(widget.size.region)
    }
    return [each for each in DEFINITIONS if each in found]
