"""A message drawn row by row from its spans: the one widget that text streams into.

It draws with the Line API. Appending wraps the last row again and repaints the rows that changed;
every other row comes from a cache, so the cost of a token does not grow with the message. Text is
selected by its characters in logical lines, not by cells, so a selection survives a new width.
Drafts that are not decided yet never enter it: they would wrap, vanish and make it jump.
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

from mlxspec_app.ascii_filter import sign, without_ascii
from mlxspec_app.bars import block
from mlxspec_app.inks import INKS, Ink, StyleName
from mlxspec_app.messages import Span
from mlxspec_app.safe_text import safe_text
from mlxspec_app.widgets.rows import (
    accepted_share,
    cells_to_draw,
    draw_run,
    opens_round,
    selected_in,
    with_tick,
)
from mlxspec_app.wrap import Run, WrappedText

GUTTER = 2
MEASURE = 100  # longer rows are hard to read
_PREFIX = "token-message--"
_SAID = "\u276f "
_CARET = "▍"


class TokenMessage(Widget):
    """Shows one message, each token in the style that the ink gives it."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {
        *(_PREFIX + name for name in get_args(StyleName)),
        _PREFIX + "band-a",
        _PREFIX + "band-b",
        _PREFIX + "gutter",
        _PREFIX + "share",
        _PREFIX + "caret",
    }
    DEFAULT_CSS = """
    TokenMessage {
        height: auto;
        color: $spec-plain;
        .token-message--plain { color: $spec-plain; }
        .token-message--accepted { color: $spec-accepted; }
        .token-message--corrected { color: $spec-corrected; text-style: bold underline; }
        .token-message--bonus { color: $spec-bonus; text-style: italic; }
        .token-message--step-1 { color: $spec-step-1; }
        .token-message--step-2 { color: $spec-step-2; }
        .token-message--step-3 { color: $spec-step-3; }
        .token-message--step-4 { color: $spec-step-4; text-style: bold; }
        .token-message--step-5 { color: $spec-step-5; text-style: bold underline; }
        .token-message--over { color: $spec-corrected; text-style: underline; }
        .token-message--far-over { color: $spec-corrected; text-style: bold underline; }
        .token-message--under { color: $spec-bonus; text-style: italic; }
        .token-message--far-under { color: $spec-bonus; text-style: bold italic; }
        .token-message--text { color: $spec-accepted; }
        .token-message--head { color: $spec-bonus; text-style: italic; }
        .token-message--model { color: $spec-corrected; text-style: underline; }
        .token-message--band-a { background: $spec-band-a; }
        .token-message--band-b { background: $spec-band-b; }
        .token-message--gutter { color: $spec-muted; }
        .token-message--share { color: $spec-accepted 45%; }
        .token-message--caret { color: $foreground; }
        &:nocolor .token-message--step-1 { text-style: dim; }
        &:ansi .token-message--step-1 { text-style: dim; }
    }
    TokenMessage.-said {
        background: $surface;
        .token-message--gutter { color: $foreground; text-style: bold; }
    }
    """

    def __init__(self, *, said: bool = False) -> None:
        """Make an empty message; `said` by the user, it is set apart and has no inks."""
        super().__init__(classes="-said" if said else None)
        self._said = said
        self._spans: list[Span] = []
        self._text = WrappedText()
        self._strips: dict[int, Strip] = {}
        self._ink = INKS[0]
        self._streaming = False
        self._pointed: int | None = None

    @property
    def num_spans(self) -> int:
        """Spans shown so far."""
        return len(self._spans)

    def extend(self, spans: Sequence[Span]) -> None:
        """Add spans at the end, repainting only the rows that change."""
        if not spans:
            return
        rows = len(self._text.rows)
        first = rows - 1
        for span in spans:
            self._spans.append(span)
            self._text.append(safe_text(span.text), len(self._spans) - 1)
        self._forget(range(first, rows))
        self._repaint(first, grew=len(self._text.rows) != rows)

    def set_streaming(self, streaming: bool) -> None:
        """Show or hide the caret that says more is coming."""
        if streaming == self._streaming:
            return
        self._streaming = streaming
        last = len(self._text.rows) - 1
        self._forget(range(last, last + 1))
        self._repaint(last, grew=False)

    def point_at(self, span: int | None) -> int | None:
        """Mark a span, or none; return the row where it begins."""
        if span != self._pointed:
            self._pointed = span
            self._forget_all()
        if span is None:
            return None
        tags = (
            (y, run.tag) for y, row in enumerate(self._text.rows) for run in self._text.runs(row)
        )
        return next((y for y, tag in tags if tag >= span), len(self._text.rows) - 1)

    def set_ink(self, ink: Ink) -> None:
        if ink is not self._ink:
            self._ink = ink
            self._forget_all()

    def notify_style_update(self) -> None:
        super().notify_style_update()
        self._strips.clear()

    def selection_updated(self, selection: Selection | None) -> None:
        self._forget_all()

    def get_line_filters(self) -> Sequence[LineFilter]:
        return without_ascii(super().get_line_filters())

    def get_content_width(self, container: Size, viewport: Size) -> int:
        return container.width

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        self._fit(width)
        return len(self._text.rows)

    def get_selection(self, selection: Selection) -> tuple[str, str]:
        lines = [line.text for line in self._text.lines]
        chosen = []
        for number, line in enumerate(lines):
            span = selection.get_span(number)
            if span is not None:
                start, end = span
                chosen.append(line[start:] if end == -1 else line[start:end])
        return "\n".join(chosen), "\n"

    def render_line(self, y: int) -> Strip:
        self._fit(self.size.width)
        if not 0 <= y < len(self._text.rows):
            return Strip.blank(self.size.width, self.rich_style)
        if y not in self._strips:
            self._strips[y] = self._draw(y)
        return self._strips[y]

    def _fit(self, width: int) -> None:
        width = max(1, min(MEASURE, width - GUTTER - 1))
        if width != self._text.width:
            self._text.set_width(width)
            self._strips.clear()

    def _repaint(self, first: int, *, grew: bool) -> None:
        if grew:
            self.refresh(layout=True)
        else:
            self.refresh(Region(0, first, self.size.width, len(self._text.rows) - first))

    def _forget(self, rows: range) -> None:
        for row in rows:
            self._strips.pop(row, None)

    def _forget_all(self) -> None:
        self._strips.clear()
        self.refresh()

    def _draw(self, y: int) -> Strip:
        row = self._text.rows[y]
        runs = self._text.runs(row)
        chosen = selected_in(row, self.text_selection)
        line = self._text.lines[row.line]
        is_banded = self._is_tinted or not self._ink.bands
        segments = []
        for run in runs:
            drawn = draw_run(line.text, run, chosen, self._run_style(run), self._selection_style)
            if not is_banded and opens_round(line, run, self._spans):
                drawn = with_tick(drawn)
            segments += drawn
        strip = (
            Strip(segments)
            .crop(0, cells_to_draw(self._text, row))
            .apply_offsets(row.start, row.line)
        )
        parts = [Strip([self._gutter(y, runs)]), strip]
        if self._streaming and y == len(self._text.rows) - 1:
            parts.append(Strip([Segment(sign(self.app, _CARET), self._style("caret"))]))
        return Strip.join(parts).adjust_cell_length(self.size.width, self.rich_style)

    def _gutter(self, y: int, runs: Sequence[Run]) -> Segment:
        """Return the margin: a prompt sign, or the share of the row that was drafted."""
        if self._said:
            said = sign(self.app, _SAID)
            return Segment(said if y == 0 else "  ", self._style("gutter"))
        share = accepted_share(runs, self._spans) if self._ink.bands else 0.0
        return Segment(sign(self.app, block(share)) + " ", self._style("share"))

    def _run_style(self, run: Run) -> Style:
        style = self._span_style(self._spans[run.tag])
        return style + Style(reverse=True) if run.tag == self._pointed else style

    def _span_style(self, span: Span) -> Style:
        name = "plain" if self._said else self._ink.style_of(span)
        if not self._ink.bands or span.kind is None:
            return self._style(name)
        band = self._style("band-a" if span.round % 2 else "band-b")
        return self._style(name) + Style(bgcolor=band.bgcolor)

    @property
    def _selection_style(self) -> Style:
        if not self._is_tinted:
            return Style(reverse=True)
        return Style(bgcolor=self.screen.get_component_rich_style("screen--selection").bgcolor)

    @property
    def _is_tinted(self) -> bool:
        """Whether backgrounds can tell things apart."""
        return not (self.app.no_color or self.app.native_ansi_color)

    def _style(self, name: str) -> Style:
        return self.get_component_rich_style(_PREFIX + name)
