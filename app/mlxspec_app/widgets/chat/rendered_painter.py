"""Paints a message as rendered Markdown, with a tint for guessed words.

Hue shows who wrote a word, lightness shows its role in the text. So the tint is visible in headings
and code too, and nothing has to be bold or underlined.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from mlxspec_app.conversation.messages import Span
from mlxspec_app.conversation.rendered_text import RenderedText
from mlxspec_app.text.ascii_filter import sign
from mlxspec_app.text.rendering.pieces import Piece, ShownRow, Tone, cells
from mlxspec_app.text.tagged_lines import Run
from mlxspec_app.widgets.chat.exact_painter import BLOCK_BAR
from mlxspec_app.widgets.chat.rows import chosen_in, draw_run

if TYPE_CHECKING:
    from mlxspec_app.widgets.chat.token_message import TokenMessage

_NO_STYLE = Style()


class RenderedPainter:
    """Paints the rows of one message."""

    def __init__(self, message: "TokenMessage", text: RenderedText) -> None:
        self.text = text
        self._message = message
        self._styles: dict[tuple[Tone, bool, bool], Style] = {}

    def forget_styles(self) -> None:
        """Drop the cached styles, after a change of the theme."""
        self._styles.clear()

    def paint(self, y: int) -> list[Strip]:
        """Return the parts of a row, from the left margin to the end of its text."""
        row = self.text.rows[y]
        parts = [self._gutter(row), *(self._piece(piece) for piece in row.pieces)]
        room = self.text.width + 2
        return [Strip.join(parts).crop(0, room)] if cells(row.pieces) > self.text.width else parts

    def is_code(self, y: int) -> bool:
        return self.text.rows[y].is_code

    def _gutter(self, row: ShownRow) -> Strip:
        spans = list(self._spans(row))
        is_aside = bool(spans) and all(span.channel != "answer" for span in spans)
        bar = sign(self._message.app, BLOCK_BAR) if is_aside else " "
        return Strip([Segment(f" {bar}", self._message.part_style("gutter"))])

    def _spans(self, row: ShownRow) -> Iterator[Span]:
        for piece in row.pieces:
            if piece.line >= 0:
                yield self.text.spans[self.text.lines[piece.line].tag_at(piece.start)]

    def _piece(self, piece: Piece) -> Strip:
        shown = sign(self._message.app, piece.text) if Tone.SIGN in piece.tone else piece.text
        if piece.line < 0:
            return Strip([Segment(shown, self._style(piece.tone, None))])
        line, end = self.text.lines[piece.line], piece.start + len(piece.text)
        if line.text[piece.start : end] != piece.text:  # a sign replaces its Markdown source
            run = Run(0, len(shown), line.tag_at(piece.start))
            style = self._run_style(piece.tone, run.tag)
            return Strip([Segment(shown, style)]).apply_offsets(piece.start, piece.line)
        chosen = chosen_in(piece.line, end, self._message.text_selection)
        selection = self._message.selection_style if chosen else _NO_STYLE
        segments: list[Segment] = []
        for run in line.runs(piece.start, end):
            style = self._run_style(piece.tone, run.tag)
            segments += draw_run(line.text, run, chosen, style, selection)
        return Strip(segments).apply_offsets(piece.start, piece.line)

    def _run_style(self, tone: Tone, tag: int) -> Style:
        style = self._style(tone, self.text.spans[tag])
        return style + Style(reverse=True) if tag == self._message.pointed else style

    def _style(self, tone: Tone, span: Span | None) -> Style:
        is_guess = self._message.view.is_tinted and span is not None and span.kind == "accepted"
        key = (tone, is_guess, span is not None and span.channel != "answer")
        if key not in self._styles:
            self._styles[key] = self._mixed(*key)
        return self._styles[key]

    def _mixed(self, tone: Tone, is_guess: bool, is_aside: bool) -> Style:
        message = self._message
        style = message.rich_style
        if Tone.CODE in tone:
            style += message.own_style("code", "bgcolor")
        hue = "guess" if is_guess else "own"
        level = "-loud" if Tone.LOUD in tone else "-quiet" if Tone.QUIET in tone else ""
        style += message.own_style(hue + level, "color", "italic", "dim")
        if is_aside:
            style += message.own_style("reasoning", "dim", "italic")
        return style + Style(
            italic=True if Tone.ITALIC in tone else None,
            strike=True if Tone.STRIKE in tone else None,
        )
