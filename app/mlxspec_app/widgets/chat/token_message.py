"""A message drawn row by row from its spans: the widget into which text streams.

It uses Textual's Line API. An append wraps the last row again and repaints the rows that changed;
every other row comes from a cache, so the cost of a token does not grow with the message. A
selection consists of characters in logical lines and not of cells, so it survives a new width.
Drafts without a verdict are never part of the message: they would wrap, vanish and make it jump.
"""

from collections.abc import Sequence
from typing import ClassVar, get_args

from rich.segment import Segment
from rich.style import Style
from textual.filter import LineFilter
from textual.geometry import Region, Size
from textual.selection import Selection
from textual.strip import Strip
from textual.widget import Widget

from mlxspec_app.conversation.inks import INKS, Ink, StyleName
from mlxspec_app.conversation.message_text import MessageText
from mlxspec_app.conversation.messages import Span
from mlxspec_app.text.ascii_filter import sign, without_ascii
from mlxspec_app.text.bars import block
from mlxspec_app.text.live_markdown import Look, pieces_in
from mlxspec_app.text.wrap import Row, Run
from mlxspec_app.widgets.chat.message_css import MESSAGE_CSS
from mlxspec_app.widgets.chat.rows import (
    accepted_share,
    cells_to_draw,
    draw_run,
    is_reasoning,
    opens_round,
    selected_in,
    with_tick,
)

GUTTER = 2
MEASURE = 100  # cells; longer rows are hard to read
_PREFIX = "token-message--"
_PROMPT_SIGN = "\u276f "
_CARET = "▍"
_BLOCK_BAR = "\u2502"
_MOST_STRIPS = 160  # rows in the cache: a few screens
_NO_STYLE = Style()
_LOOK_STYLES = {Look.MARK: "mark", Look.STRONG: "strong", Look.EMPHASIS: "emphasis"}


class TokenMessage(Widget):
    """Shows one message, each token in its style of the ink.

    It can have a margin and a background, but no padding and no border.
    """

    COMPONENT_CLASSES: ClassVar[set[str]] = {
        *(_PREFIX + name for name in get_args(StyleName)),
        _PREFIX + "band-a",
        _PREFIX + "band-b",
        _PREFIX + "gutter",
        _PREFIX + "share",
        _PREFIX + "caret",
        *(_PREFIX + name for name in _LOOK_STYLES.values()),
        _PREFIX + "reasoning",
        _PREFIX + "code",
        _PREFIX + "block",
    }
    DEFAULT_CSS = MESSAGE_CSS

    def __init__(self, *, is_user: bool = False) -> None:
        """Make an empty message; one of the user has another background and no inks."""
        super().__init__(classes="-user" if is_user else None)
        self._is_user = is_user
        self._text = MessageText(is_markdown=not is_user)
        self._strips: dict[int, Strip] = {}
        self._strip_width = 0
        self._styles: dict[tuple[str, str, Look, bool], Style] = {}
        self._ink = INKS[0]
        self._streaming = False
        self._pointed: int | None = None

    @property
    def num_spans(self) -> int:
        """Number of spans so far."""
        return len(self._text.spans)

    @property
    def text(self) -> str:
        """The text of the message as drawn."""
        return "\n".join(line.text for line in self._text.wrapped.lines)

    def extend(self, spans: Sequence[Span]) -> None:
        """Add spans at the end and repaint only the rows that change."""
        if not spans:
            return
        before = self._text.num_rows
        self._renew(self._text.extend(spans), before)

    def cut_to(self, num_spans: int) -> None:
        """Drop all but the first spans; only the last rows are wrapped again."""
        if num_spans >= self.num_spans:
            return
        if self._pointed is not None and self._pointed >= num_spans:
            self._pointed = None
        before = self._text.num_rows
        self._renew(self._text.cut_to(num_spans), before)

    def set_streaming(self, streaming: bool) -> None:
        """Show or hide the caret of an unfinished reply."""
        if streaming == self._streaming:
            return
        self._streaming = streaming
        self._renew(self._text.num_rows - 1, self._text.num_rows)

    def point_at(self, span: int | None) -> int:
        """Mark a span, or none; return the row in which it begins, 0 without one."""
        before, self._pointed = self._pointed, span
        for marked in (before, span):
            if marked is not None and before != span:
                rows = self._rows_of(marked)
                self._forget(rows)
                self.refresh(Region(0, rows.start, self.size.width, len(rows)))
        return 0 if span is None else self._rows_of(span).start

    def row_at(self, line: int, character: int) -> int:
        """Return the row of a character, given by its place in a line of the text."""
        return self._text.wrapped.row_at(line, character)

    def set_ink(self, ink: Ink) -> None:
        if ink is not self._ink:
            self._ink = ink
            self._forget_all()

    def notify_style_update(self) -> None:
        super().notify_style_update()
        self._strips.clear()
        self._styles.clear()

    def selection_updated(self, selection: Selection | None) -> None:
        self._forget_all()

    def get_line_filters(self) -> Sequence[LineFilter]:
        return without_ascii(super().get_line_filters())

    def get_content_width(self, container: Size, viewport: Size) -> int:
        return container.width

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        self._fit(width)
        return self._text.num_rows

    def get_selection(self, selection: Selection) -> tuple[str, str]:
        lines = [line.text for line in self._text.wrapped.lines]
        chosen = []
        for number, line in enumerate(lines):
            span = selection.get_span(number)
            if span is not None:
                start, end = span
                chosen.append(line[start:] if end == -1 else line[start:end])
        return "\n".join(chosen), "\n"

    def render_line(self, y: int) -> Strip:
        self._fit(self.size.width)
        if self.size.width != self._strip_width:
            self._strip_width = self.size.width
            self._strips.clear()
        if not 0 <= y < self._text.num_rows:
            return Strip.blank(self.size.width, self.rich_style)
        if y not in self._strips:
            if len(self._strips) >= _MOST_STRIPS:
                self._strips.clear()
            self._strips[y] = self._draw(y)
        return self._strips[y]

    def render_lines(self, crop: Region) -> list[Strip]:
        """Return rows from the cache.

        Textual itself would style all rows again when the message grows. The garbage of that makes
        the garbage collector pause for a visible time.
        """
        if not self.is_attached:  # it was removed, but the next layout of the screen is not done
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

    def _fit(self, width: int) -> None:
        width = max(1, min(MEASURE, width - GUTTER - 1))
        if width != self._text.wrapped.width:
            self._text.wrapped.set_width(width)
            self._strips.clear()

    def _renew(self, first: int, num_before: int) -> None:
        """Repaint the rows from `first` on, after a change of a text with `num_before` rows."""
        self._forget(range(first, num_before))
        if self._text.num_rows != num_before:
            self.refresh(layout=True)
        else:
            self.refresh(Region(0, first, self.size.width, num_before - first))

    def _rows_of(self, span: int) -> range:
        """Return the rows of a span; of a message of the user, which is marked whole, the first."""
        return range(1) if self._is_user else self._text.wrapped.rows_of(span)

    def _forget(self, rows: range) -> None:
        for row in rows:
            self._strips.pop(row, None)

    def _forget_all(self) -> None:
        self._strips.clear()
        self.refresh()

    def _draw(self, y: int) -> Strip:
        wrapped = self._text.wrapped
        row = wrapped.rows[y]
        runs = wrapped.runs(row)
        cells = cells_to_draw(wrapped, row)
        strip = Strip(self._segments(row, runs)).crop(0, cells).apply_offsets(row.start, row.line)
        parts = [Strip(self._gutter(y, row, runs)), strip]
        if self._streaming and y == self._text.num_rows - 1:
            parts.append(Strip([Segment(sign(self.app, _CARET), self._style("caret"))]))
            cells += 1
        if self._text.look_of(row.line).is_code:
            rest = " " * max(0, wrapped.width + 1 - cells)
            parts.append(Strip([Segment(rest, self._style("block"))]))
        return Strip.join(parts).adjust_cell_length(self.size.width, self.rich_style)

    def _segments(self, row: Row, runs: Sequence[Run]) -> list[Segment]:
        line, look = self._text.wrapped.lines[row.line], self._text.look_of(row.line)
        chosen = selected_in(row, self.text_selection)
        selection = self._selection_style if chosen else _NO_STYLE
        has_ticks = self._ink.bands and not self._is_tinted
        segments: list[Segment] = []
        for run in runs:
            drawn: list[Segment] = []
            for start, end, piece_look in pieces_in(look, run.start, run.end):
                style = self._run_style(run, piece_look | Look.CODE if look.is_code else piece_look)
                drawn += draw_run(line.text, Run(start, end, run.tag), chosen, style, selection)
            is_ticked = has_ticks and opens_round(line, run, self._text.spans)
            segments += with_tick(drawn) if is_ticked else drawn
        return segments

    def _gutter(self, y: int, row: Row, runs: Sequence[Run]) -> list[Segment]:
        """Return the margin: a prompt sign, or the drafted share of the row and a bar.

        The bar is at code, quotes and reasoning.
        """
        if self._is_user:
            style = self._style("gutter")
            is_pointed = y == 0 and self._pointed is not None
            prompt_sign = sign(self.app, _PROMPT_SIGN) if y == 0 else "  "
            return [Segment(prompt_sign, style + Style(reverse=is_pointed))]
        share = accepted_share(runs, self._text.spans) if self._ink.bands else 0.0
        look = self._text.look_of(row.line)
        drafted, style = sign(self.app, block(share)), self._style("share")
        if not (look.is_code or look.is_quote or is_reasoning(runs, self._text.spans)):
            return [Segment(f"{drafted} ", style)]
        bar = Segment(sign(self.app, _BLOCK_BAR), self._style("gutter"))
        return [Segment(drafted, style), bar]

    def _run_style(self, run: Run, look: Look) -> Style:
        span = self._text.spans[run.tag]
        name = "plain" if self._is_user else self._ink.style_of(span)
        band = ("band-b", "band-a")[span.round % 2]
        shown_band = band if self._ink.bands and span.kind is not None else ""
        key = (name, shown_band, look, span.channel != "answer")
        if key not in self._styles:
            self._styles[key] = self._mixed(*key)
        style = self._styles[key]
        is_pointed = run.tag == self._pointed and not self._is_user
        return style + Style(reverse=True) if is_pointed else style

    def _mixed(self, name: str, band: str, look: Look, is_aside: bool = False) -> Style:
        """Return the style of an ink with the weights and the background of Markdown.

        `is_aside` is for text that is not part of the answer.
        """
        style = self.rich_style
        if Look.CODE in look:
            style += self._own_style("code", "bgcolor")
        for added in (added for part, added in _LOOK_STYLES.items() if part in look):
            style += self._own_style(added, "bold", "italic", "dim")
        style += self._own_style(name, "color", "bold", "italic", "underline")
        if is_aside:
            style += self._own_style("reasoning", "dim", "italic")
        return style + self._own_style(band, "bgcolor") if band else style

    def _own_style(self, name: str, *attributes: str) -> Style:
        """Return a style with only these attributes of a component, and only if they are set."""
        style = self._style(name)
        return Style(**{key: getattr(style, key) or None for key in attributes})

    @property
    def _selection_style(self) -> Style:
        if not self._is_tinted:
            return Style(reverse=True)
        return Style(bgcolor=self.screen.get_component_rich_style("screen--selection").bgcolor)

    @property
    def _is_tinted(self) -> bool:
        """Whether backgrounds can separate rounds: there are colours, and they are our own."""
        return not (self.app.no_color or self.app.native_ansi_color)

    def _style(self, name: str) -> Style:
        return self.get_component_rich_style(_PREFIX + name)
