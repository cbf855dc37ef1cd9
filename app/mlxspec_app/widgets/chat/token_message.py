"""A message drawn row by row from its spans: the widget into which text streams.

An append renders the open end again and repaints only the changed rows; all others come from a
cache, so the cost of a token does not grow with the message. A selection is stored as characters of
the source, so it survives a change of width or view, and the user copies the exact text. Drafts
without a verdict are not part of the message: they would wrap, vanish and make it jump.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from rich.segment import Segment
from textual import events
from textual.filter import LineFilter
from textual.geometry import Region, Size
from textual.message import Message as Notice
from textual.selection import Selection
from textual.strip import Strip
from textual.widget import Widget

from mlxspec_app.conversation.messages import Span
from mlxspec_app.conversation.views import CALM, Ink, View
from mlxspec_app.text.glyphs import sign, without_ascii
from mlxspec_app.text.markdown import link_at
from mlxspec_app.text.rendering.document import Document, Markup
from mlxspec_app.themes.looks import LOOKS, Look
from mlxspec_app.widgets.chat.painter import GUTTER, PREFIX, Painter

MEASURE = 100  # cells; longer rows are hard to read
_CARET = "▍"
_MOST_STRIPS = 160  # rows in the cache: a few screens
_LOOKS = LOOKS | {
    "own": Look("plain"),
    "own-loud": Look("loud"),
    "own-quiet": Look("muted"),
    **{name: Look(name) for name in ("guess-loud", "guess-quiet")},
}
_PARTS = (
    *("band-a", "band-b", "gutter", "share", "caret", "mark", "strong", "emphasis"),
    *("reasoning", "code", "block"),
)
_WEB = ("http://", "https://")
_LOOK_RULES = "\n".join(
    f"TokenMessage .{PREFIX}{name} "
    f"{{ color: $spec-{look.colour}; text-style: {look.weight or 'none'}; }}"
    for name, look in _LOOKS.items()
)


class TokenMessage(Widget):
    """Shows one message. It can have a margin, a background and a border, but no padding."""

    @dataclass
    class TokenClicked(Notice):
        """A token was clicked in the X-ray; `span` is the index of its span."""

        message: "TokenMessage"
        span: int

    COMPONENT_CLASSES: ClassVar[set[str]] = {PREFIX + name for name in (*_LOOKS, *_PARTS)}
    DEFAULT_CSS = _LOOK_RULES

    def __init__(self, *, is_user: bool = False, view: View = CALM) -> None:
        """Make an empty message; one of the user has another background and no ink."""
        super().__init__(classes="-user" if is_user else None)
        self.is_user = is_user
        self._is_turned = False
        self._streaming = False
        self._strips: dict[int, Strip] = {}
        self._strip_width = 0
        self._painter = Painter(self, view, is_user=is_user)
        self._document = self._make_document()

    @property
    def pointed(self) -> int | None:  # the index of the marked span
        return self._painter.pointed

    @property
    def num_spans(self) -> int:
        return len(self._painter.spans)

    @property
    def is_rendered(self) -> bool:
        return not self._painter.is_exact

    @property
    def text(self) -> str:
        """The text of the message, without control characters."""
        return "\n".join(line.text for line in self._document.lines)

    def extend(self, spans: Sequence[Span]) -> None:
        """Append spans and repaint only the rows that change."""
        if not spans:
            return
        before = len(self._document.rows)
        self._painter.spans += spans
        self._renew(self._document.extend([span.text for span in spans]), before)

    def cut_to(self, num_spans: int) -> None:
        """Keep only the first spans; only the last rows are wrapped again."""
        if num_spans >= self.num_spans:
            return
        if self.pointed is not None and self.pointed >= num_spans:
            self._painter.pointed = None
        before = len(self._document.rows)
        del self._painter.spans[num_spans:]
        self._renew(self._document.cut_to(num_spans), before)

    def set_streaming(self, streaming: bool) -> None:
        if streaming == self._streaming:
            return
        self._streaming = streaming
        before = len(self._document.rows)
        first = self._document.set_open(streaming)
        self._renew(max(0, min(first, before - 1, len(self._document.rows) - 1)), before)

    def point_at(self, span: int | None) -> int:
        """Mark a span, or clear the mark; return the first row of the span, 0 without one."""
        before, self._painter.pointed = self.pointed, span
        for marked in (before, span):
            if marked is not None and before != span:
                rows = self._rows_of(marked)
                self._forget(rows)
                self.refresh(Region(0, rows.start, self.size.width, len(rows)))
        return 0 if span is None else self._rows_of(span).start

    def row_at(self, line: int, character: int) -> int:
        return self._document.row_at(line, character)

    def set_ink(self, ink: Ink) -> None:
        if ink is not self._painter.ink:
            self._painter.ink = ink
            self._forget_all()

    def set_view(self, view: View) -> None:  # this undoes `turn`
        if view is not self._painter.view or self._is_turned:
            self._painter.view, self._is_turned = view, False
            self._paint_anew()

    def turn(self) -> None:
        """Switch between rendered Markdown and the exact text."""
        self._is_turned = not self._is_turned
        self._paint_anew()

    def notify_style_update(self) -> None:
        super().notify_style_update()
        self._strips.clear()
        self._painter.forget_styles()

    def selection_updated(self, selection: Selection | None) -> None:
        self._forget_all()

    def get_line_filters(self) -> Sequence[LineFilter]:
        return without_ascii(super().get_line_filters())

    def get_content_width(self, container: Size, viewport: Size) -> int:
        return container.width

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        self._fit(width)
        return len(self._document.rows)

    def get_selection(self, selection: Selection) -> tuple[str, str]:
        chosen = []
        for number, line in enumerate(self._document.lines):
            span = selection.get_span(number)
            if span is not None:
                start, end = span
                chosen.append(line.text[start:] if end == -1 else line.text[start:end])
        return "\n".join(chosen), "\n"

    def on_click(self, event: events.Click) -> None:
        """Open a web link, or in the X-ray post `TokenClicked`."""
        _, offset = self.screen.get_widget_and_offset_at(event.screen_x, event.screen_y)
        lines = self._document.lines
        if offset is None or self.is_user or not 0 <= offset.y < len(lines):
            return
        line = lines[offset.y]
        if not 0 <= offset.x < len(line.text):
            return
        if not self._painter.view.is_rendered:
            self.post_message(self.TokenClicked(self, line.tag_at(offset.x)))
        elif link := link_at(line.text, offset.x):
            self._open(link)

    def render_line(self, y: int) -> Strip:
        self._fit(self.size.width)
        if self.size.width != self._strip_width:
            self._strip_width = self.size.width
            self._strips.clear()
        if not 0 <= y < len(self._document.rows):
            return Strip.blank(self.size.width, self.rich_style)
        if y not in self._strips:
            if len(self._strips) >= _MOST_STRIPS:
                self._strips.clear()
            self._strips[y] = self._draw(y)
        return self._strips[y]

    def render_lines(self, crop: Region) -> list[Strip]:
        """Return rows from a cache: Textual would style all of them again for each new one."""
        if not self.is_attached:  # removed, but the screen has no new layout yet
            return [Strip.blank(crop.width)] * crop.height
        if self.styles.border_top[0]:
            return super().render_lines(crop)  # draws the frame around the rows too
        strips = [self.render_line(y) for y in crop.line_range]
        for line_filter in self.get_line_filters():
            background = self.background_colors[1]
            strips = [strip.apply_filter(line_filter, background) for strip in strips]
        if crop.column_span == (0, self.size.width):
            return strips
        return [strip.crop(*crop.column_span) for strip in strips]

    def _make_document(self) -> Document:
        painter = self._painter
        painter.is_exact = self.is_user or painter.view.is_rendered == self._is_turned
        markup: Markup = "plain" if self.is_user else "exact" if painter.is_exact else "rendered"
        return Document(markup=markup, is_open=self._streaming)

    def _paint_anew(self) -> None:
        width = self._document.width
        self._painter.forget_styles()
        self._document = self._make_document()
        self._document.set_width(width)
        self._document.extend([span.text for span in self._painter.spans])
        self._strips.clear()
        self.refresh(layout=True)

    def _fit(self, width: int) -> None:
        width = max(1, min(MEASURE, width - GUTTER - 1))
        if width != self._document.width:
            self._document.set_width(width)
            self._strips.clear()

    def _renew(self, first: int, num_before: int) -> None:
        """Repaint from row `first`, after a change of a text that had `num_before` rows."""
        if self._streaming:  # the caret leaves the last row, even if its text is the same
            first = min(first, max(0, num_before - 1))
        self._forget(range(first, num_before))
        if len(self._document.rows) != num_before:
            self.refresh(layout=True)
        else:
            self.refresh(Region(0, first, self.size.width, num_before - first))

    def _rows_of(self, span: int) -> range:
        """Return the rows of a span; a user message is marked as a whole, at its first row."""
        return range(1) if self.is_user else self._document.rows_of(span)

    def _forget(self, rows: range) -> None:
        for row in rows:
            self._strips.pop(row, None)

    def _forget_all(self) -> None:
        self._strips.clear()
        self.refresh()

    def _draw(self, y: int) -> Strip:
        parts = self._painter.paint(self._document, y)
        if self._streaming and y == len(self._document.rows) - 1:
            caret = sign(self.app, _CARET)
            parts.append(Strip([Segment(caret, self._painter.part_style("caret"))]))
        if self._document.rows[y].is_code:
            used = sum(part.cell_length for part in parts)
            rest = " " * max(0, GUTTER + self._document.width + 1 - used)
            parts.append(Strip([Segment(rest, self._painter.part_style("block"))]))
        return Strip.join(parts).adjust_cell_length(self.size.width, self.rich_style)

    def _open(self, link: str) -> None:
        """Open web pages only: a model could write a link to any file or program."""
        if link.startswith(_WEB):
            self.app.open_url(link)
        else:
            self.notify(f"{link} is not a web page", severity="warning", timeout=3)
