"""Replaces the signs of the app with ASCII: a filter over the painted rows of a widget.

The text of the user and of the model never changes. So a widget that shows such text removes the
filter with `without_ascii`, and passes its own signs through `sign`.
"""

from collections.abc import Sequence

from rich.segment import Segment
from textual.app import App
from textual.color import Color
from textual.filter import LineFilter

from mlxspec_app.text.glyphs import to_ascii


class AsciiFilter(LineFilter):
    """Replaces the signs of the app with their ASCII equivalents."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        return [Segment(to_ascii(text), style, control) for text, style, control in segments]


def without_ascii(filters: Sequence[LineFilter]) -> Sequence[LineFilter]:
    """Return the filters for a widget whose text must not change."""
    return [item for item in filters if not isinstance(item, AsciiFilter)]


def sign(app: App[object], text: str) -> str:
    """Return the signs of a widget without the filter, in ASCII if the app uses ASCII."""
    in_ascii = any(isinstance(item, AsciiFilter) for item in app.get_line_filters())
    return to_ascii(text) if in_ascii else text
