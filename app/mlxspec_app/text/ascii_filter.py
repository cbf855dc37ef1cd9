"""The edge at which signs become ASCII: a filter over the painted rows of a widget.

A widget that shows the words of the user or the model leaves the filter out with
`without_ascii`, since these are never altered, and asks `sign` for what it adds to them.
"""

from collections.abc import Sequence

from rich.segment import Segment
from textual.app import App
from textual.color import Color
from textual.filter import LineFilter

from mlxspec_app.text.glyphs import to_ascii


class AsciiFilter(LineFilter):
    """Replaces the signs of the app by their twins in ASCII."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        return [Segment(to_ascii(text), style, control) for text, style, control in segments]


def without_ascii(filters: Sequence[LineFilter]) -> Sequence[LineFilter]:
    """Return the filters of a widget whose text stays as it is."""
    return [item for item in filters if not isinstance(item, AsciiFilter)]


def sign(app: App[object], text: str) -> str:
    """Return what a widget adds to text that stays as it is, in the signs that the app uses."""
    in_ascii = any(isinstance(item, AsciiFilter) for item in app.get_line_filters())
    return to_ascii(text) if in_ascii else text
