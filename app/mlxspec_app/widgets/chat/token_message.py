"""A message drawn row by row from its spans: the widget into which text streams.

It uses Textual's Line API. An append renders the open end again and repaints only the changed rows.
All others come from a cache, so the cost of a token does not grow with the message. A selection is
stored as characters of the source, not as cells. So it survives a change of width or view, and the
user copies the exact text. Drafts without a verdict are not part of the message: they would wrap,
vanish and make it jump.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, get_args

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.filter import LineFilter
from textual.geometry import Region, Size
from textual.message import Message as Notice
from textual.selection import Selection
from textual.strip import Strip
from textual.widget import Widget

from mlxspec_app.conversation.inks import INKS, Ink, StyleName
from mlxspec_app.conversation.message_text import MessageText
from mlxspec_app.conversation.messages import Span
from mlxspec_app.conversation.rendered_text import RenderedText
from mlxspec_app.conversation.views import DEFAULT_VIEW, View
from mlxspec_app.text.ascii_filter import sign, without_ascii
from mlxspec_app.text.links import link_at
from mlxspec_app.widgets.chat.exact_painter import ExactPainter
from mlxspec_app.widgets.chat.message_css import MESSAGE_CSS
from mlxspec_app.widgets.chat.rendered_painter import RenderedPainter

GUTTER = 2
MEASURE = 100  # cells; longer rows are hard to read
_PREFIX = "token-message--"
_CARET = "▍"
_MOST_STRIPS = 160  # rows in the cache: a few screens
_TONES = ("own", "own-loud", "own-quiet", "guess", "guess-loud", "guess-quiet")
_WEB = ("http://", "https://")


class TokenMessage(Widget):
    """Shows one message, each token in the style of the view and the ink.

    It can have a margin, a background and a border, but no padding. `pointed` is the index of the
    marked span, None without one.
    """

    @dataclass
    class TokenClicked(Notice):
        """A token was clicked in the X-ray; `span` is the index of its span."""

        message: "TokenMessage"
        span: int

    COMPONENT_CLASSES: ClassVar[set[str]] = {
        *(_PREFIX + name for name in get_args(StyleName)),
        *(_PREFIX + name for name in _TONES),
        *(_PREFIX + name for name in ("band-a", "band-b", "gutter", "share", "caret")),
        *(_PREFIX + name for name in ("mark", "strong", "emphasis")),
        *(_PREFIX + name for name in ("reasoning", "code", "block")),
    }
    DEFAULT_CSS = MESSAGE_CSS

    def __init__(self, *, is_user: bool = False, view: View = DEFAULT_VIEW) -> None:
        """Make an empty message; one of the user has another background and no ink."""
        super().__init__(classes="-user" if is_user else None)
        self.is_user = is_user
        self.view = view
        self.ink = INKS[0]
        self.pointed: int | None = None
        self._is_turned = False
        self._streaming = False
        self._strips: dict[int, Strip] = {}
        self._strip_width = 0
        self._painter = self._make_painter()

    @property
    def num_spans(self) -> int:
        return len(self._painter.text.spans)

    @property
    def is_rendered(self) -> bool:
        """Whether the message is shown as rendered Markdown."""
        return isinstance(self._painter, RenderedPainter)

    @property
    def text(self) -> str:
        """The text of the message, without control characters."""
        return "\n".join(line.text for line in self._painter.text.lines)

    def extend(self, spans: Sequence[Span]) -> None:
        """Append spans and repaint only the rows that change."""
        if not spans:
            return
        before = self._painter.text.num_rows
        self._renew(self._painter.text.extend(spans), before)

    def cut_to(self, num_spans: int) -> None:
        """Keep only the first spans; only the last rows are wrapped again."""
        if num_spans >= self.num_spans:
            return
        if self.pointed is not None and self.pointed >= num_spans:
            self.pointed = None
        before = self._painter.text.num_rows
        self._renew(self._painter.text.cut_to(num_spans), before)

    def set_streaming(self, streaming: bool) -> None:
        """Show or hide the caret of an unfinished reply."""
        if streaming == self._streaming:
            return
        self._streaming = streaming
        text = self._painter.text
        before = first = text.num_rows
        if isinstance(text, RenderedText):
            first = text.set_open(streaming)
        self._renew(max(0, min(first, before - 1, text.num_rows - 1)), before)

    def point_at(self, span: int | None) -> int:
        """Mark a span, or clear the mark; return the first row of the span, 0 without one."""
        before, self.pointed = self.pointed, span
        for marked in (before, span):
            if marked is not None and before != span:
                rows = self._rows_of(marked)
                self._forget(rows)
                self.refresh(Region(0, rows.start, self.size.width, len(rows)))
        return 0 if span is None else self._rows_of(span).start

    def row_at(self, line: int, character: int) -> int:
        """Return the row of a character, given by its logical line and its index there."""
        return self._painter.text.row_at(line, character)

    def set_ink(self, ink: Ink) -> None:
        if ink is not self.ink:
            self.ink = ink
            self._forget_all()

    def set_view(self, view: View) -> None:
        """Show the message in another view; this undoes `turn`."""
        if view is not self.view or self._is_turned:
            self.view, self._is_turned = view, False
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
        return self._painter.text.num_rows

    def get_selection(self, selection: Selection) -> tuple[str, str]:
        chosen = []
        for number, line in enumerate(self._painter.text.lines):
            span = selection.get_span(number)
            if span is not None:
                start, end = span
                chosen.append(line.text[start:] if end == -1 else line.text[start:end])
        return "\n".join(chosen), "\n"

    def on_click(self, event: events.Click) -> None:
        """Open a web link, or in the X-ray post `TokenClicked`."""
        _, offset = self.screen.get_widget_and_offset_at(event.screen_x, event.screen_y)
        lines = self._painter.text.lines
        if offset is None or self.is_user or not 0 <= offset.y < len(lines):
            return
        line = lines[offset.y]
        if not 0 <= offset.x < len(line.text):
            return
        if not self.view.is_rendered:
            self.post_message(self.TokenClicked(self, line.tag_at(offset.x)))
        elif link := link_at(line.text, offset.x):
            self._open(link)

    def render_line(self, y: int) -> Strip:
        self._fit(self.size.width)
        if self.size.width != self._strip_width:
            self._strip_width = self.size.width
            self._strips.clear()
        if not 0 <= y < self._painter.text.num_rows:
            return Strip.blank(self.size.width, self.rich_style)
        if y not in self._strips:
            if len(self._strips) >= _MOST_STRIPS:
                self._strips.clear()
            self._strips[y] = self._draw(y)
        return self._strips[y]

    def render_lines(self, crop: Region) -> list[Strip]:
        """Return rows from the cache.

        Textual would style all rows again when the message grows, and the garbage collector would
        then pause for a visible time.
        """
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

    def part_style(self, name: str) -> Style:
        """Return the style of a component class, named without its prefix."""
        return self.get_component_rich_style(_PREFIX + name)

    def own_style(self, name: str, *attributes: str) -> Style:
        """Return a style with these attributes of a part; unset ones override nothing."""
        style = self.part_style(name)
        return Style(**{key: getattr(style, key) or None for key in attributes})

    @property
    def selection_style(self) -> Style:
        """The style added to selected characters."""
        if not self.has_backgrounds:
            return Style(reverse=True)
        return Style(bgcolor=self.screen.get_component_rich_style("screen--selection").bgcolor)

    @property
    def has_backgrounds(self) -> bool:
        """Whether backgrounds are distinguishable: there are colours, and they are our own."""
        return not (self.app.no_color or self.app.native_ansi_color)

    def _make_painter(self) -> ExactPainter | RenderedPainter:
        if self.is_user or self.view.is_rendered == self._is_turned:
            return ExactPainter(self, MessageText(is_markdown=not self.is_user))
        return RenderedPainter(self, RenderedText(is_open=self._streaming))

    def _paint_anew(self) -> None:
        spans, width = self._painter.text.spans, self._painter.text.width
        self._painter = self._make_painter()
        self._painter.text.set_width(width)
        self._painter.text.extend(spans)
        self._strips.clear()
        self.refresh(layout=True)

    def _fit(self, width: int) -> None:
        width = max(1, min(MEASURE, width - GUTTER - 1))
        if width != self._painter.text.width:
            self._painter.text.set_width(width)
            self._strips.clear()

    def _renew(self, first: int, num_before: int) -> None:
        """Repaint from row `first`, after a change of a text that had `num_before` rows."""
        if self._streaming:  # the caret leaves the last row, even if its text is the same
            first = min(first, max(0, num_before - 1))
        self._forget(range(first, num_before))
        if self._painter.text.num_rows != num_before:
            self.refresh(layout=True)
        else:
            self.refresh(Region(0, first, self.size.width, num_before - first))

    def _rows_of(self, span: int) -> range:
        """Return the rows of a span; a user message is marked as a whole, at its first row."""
        return range(1) if self.is_user else self._painter.text.rows_of(span)

    def _forget(self, rows: range) -> None:
        for row in rows:
            self._strips.pop(row, None)

    def _forget_all(self) -> None:
        self._strips.clear()
        self.refresh()

    def _draw(self, y: int) -> Strip:
        parts = self._painter.paint(y)
        if self._streaming and y == self._painter.text.num_rows - 1:
            parts.append(Strip([Segment(sign(self.app, _CARET), self.part_style("caret"))]))
        if self._painter.is_code(y):
            used = sum(part.cell_length for part in parts)
            rest = " " * max(0, GUTTER + self._painter.text.width + 1 - used)
            parts.append(Strip([Segment(rest, self.part_style("block"))]))
        return Strip.join(parts).adjust_cell_length(self.size.width, self.rich_style)

    def _open(self, link: str) -> None:
        """Open web pages only: a model could write a link to any file or program."""
        if link.startswith(_WEB):
            self.app.open_url(link)
        else:
            self.notify(f"{link} is not a web page", severity="warning", timeout=3)
