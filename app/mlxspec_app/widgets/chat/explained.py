"""The definition of a figure beside it: under the pointer, as long as it rests there."""

from textual import events
from textual.geometry import Region
from textual.widget import Widget

from mlxspec_app.conversation.definitions import definitions_in


class Explained(Widget):
    """A widget whose rows explain the figures in them.

    A subclass draws text with figures; the tooltip follows the row under the pointer.
    """

    def on_mouse_move(self, event: events.MouseMove) -> None:
        """Explain the row under the pointer."""
        rows = self.render_lines(Region(0, event.y, self.size.width, 1))
        found = definitions_in("".join(row.text for row in rows))
        self.tooltip = "\n".join(f"{name}: {meaning}" for name, meaning, *_ in found) or None
