"""Paints the exact text of a message: the X-ray, and what the user wrote.

The ink gives each token its style, rounds have alternating backgrounds, and Markdown marks stay
visible. Plain rounds have no background: each would colour a single token.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from mlxspec_app.conversation.message_text import MessageText
from mlxspec_app.text.ascii_filter import sign
from mlxspec_app.text.bars import block
from mlxspec_app.text.live_markdown import Look, pieces_in
from mlxspec_app.text.tagged_lines import Run
from mlxspec_app.text.wrap import Row
from mlxspec_app.widgets.chat.rows import (
    accepted_share,
    cells_to_draw,
    draw_run,
    is_reasoning,
    opens_round,
    selected_in,
    with_tick,
)

if TYPE_CHECKING:
    from mlxspec_app.widgets.chat.token_message import TokenMessage

BLOCK_BAR = "\u2502"
_PROMPT_SIGN = "\u276f "
_NO_STYLE = Style()
_LOOK_STYLES = {Look.MARK: "mark", Look.STRONG: "strong", Look.EMPHASIS: "emphasis"}


class ExactPainter:
    """Paints the rows of one message."""

    def __init__(self, message: "TokenMessage", text: MessageText) -> None:
        self.text = text
        self._message = message
        self._styles: dict[tuple[str, str, Look, bool], Style] = {}

    def forget_styles(self) -> None:
        """Drop the cached styles, after a change of the theme."""
        self._styles.clear()

    def paint(self, y: int) -> list[Strip]:
        """Return the parts of a row, from the left margin to the end of its text."""
        wrapped = self.text.wrapped
        row = wrapped.rows[y]
        runs = wrapped.runs(row)
        cells = cells_to_draw(wrapped, row)
        strip = Strip(self._segments(row, runs)).crop(0, cells).apply_offsets(row.start, row.line)
        return [Strip(self._gutter(y, row, runs)), strip]

    def is_code(self, y: int) -> bool:
        return self.text.look_of(self.text.wrapped.rows[y].line).is_code

    def mixed(self, name: str, band: str, look: Look, is_aside: bool = False) -> Style:
        """Return the style of an ink with the weight and the background that Markdown adds.

        `is_aside` is for text outside the answer, such as reasoning.
        """
        message = self._message
        style = message.rich_style
        if Look.CODE in look:
            style += message.own_style("code", "bgcolor")
        for added in (added for part, added in _LOOK_STYLES.items() if part in look):
            style += message.own_style(added, "bold", "italic", "dim")
        style += message.own_style(name, "color", "bold", "italic", "underline")
        if is_aside:
            style += message.own_style("reasoning", "dim", "italic")
        return style + message.own_style(band, "bgcolor") if band else style

    def _segments(self, row: Row, runs: Sequence[Run]) -> list[Segment]:
        line, look = self.text.wrapped.lines[row.line], self.text.look_of(row.line)
        chosen = selected_in(row, self._message.text_selection)
        selection = self._message.selection_style if chosen else _NO_STYLE
        has_ticks = self._message.ink.bands and not self._message.has_backgrounds
        segments: list[Segment] = []
        for run in runs:
            drawn: list[Segment] = []
            for start, end, piece_look in pieces_in(look, run.start, run.end):
                style = self._run_style(run, piece_look | Look.CODE if look.is_code else piece_look)
                drawn += draw_run(line.text, Run(start, end, run.tag), chosen, style, selection)
            is_ticked = has_ticks and opens_round(line, run, self.text.spans)
            segments += with_tick(drawn) if is_ticked else drawn
        return segments

    def _gutter(self, y: int, row: Row, runs: Sequence[Run]) -> list[Segment]:
        """Return the prompt sign, or the drafted share and a bar at code, quotes and reasoning."""
        message = self._message
        if message.is_user:
            style = message.part_style("gutter")
            prompt_sign = sign(message.app, _PROMPT_SIGN) if y == 0 else "  "
            is_pointed = y == 0 and message.pointed is not None
            return [Segment(prompt_sign, style + Style(reverse=is_pointed))]
        share = accepted_share(runs, self.text.spans) if message.ink.bands else 0.0
        look = self.text.look_of(row.line)
        drafted, style = sign(message.app, block(share)), message.part_style("share")
        if not (look.is_code or look.is_quote or is_reasoning(runs, self.text.spans)):
            return [Segment(f"{drafted} ", style)]
        bar = Segment(sign(message.app, BLOCK_BAR), message.part_style("gutter"))
        return [Segment(drafted, style), bar]

    def _run_style(self, run: Run, look: Look) -> Style:
        message = self._message
        span = self.text.spans[run.tag]
        name = "plain" if message.is_user else message.ink.style_of(span)
        band = ("band-b", "band-a")[span.round % 2]
        has_band = message.ink.bands and span.kind not in (None, "plain", "kept")
        key = (name, band if has_band else "", look, span.channel != "answer")
        if key not in self._styles:
            self._styles[key] = self.mixed(*key)
        style = self._styles[key]
        is_pointed = run.tag == message.pointed and not message.is_user
        return style + Style(reverse=True) if is_pointed else style
