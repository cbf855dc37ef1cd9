"""Paints the rows of a message: who wrote each character, and what Markdown makes of it.

In the X-ray the ink gives each token its style, and rounds have alternating backgrounds; a plain
round, a single token, has none. In the calm view hue shows who wrote a word, and lightness its role
in the text; what Markdown has bold is bold.
"""

from collections.abc import Sequence
from itertools import pairwise

from rich.cells import split_graphemes
from rich.segment import Segment
from rich.style import Style
from textual.selection import Selection
from textual.strip import Strip
from textual.widget import Widget

from mlxspec_app.conversation.messages import Span
from mlxspec_app.conversation.views import INKS, View
from mlxspec_app.text.bars import block
from mlxspec_app.text.glyphs import sign
from mlxspec_app.text.rendering.document import Document
from mlxspec_app.text.rendering.pieces import Piece, ShownRow, Tone, cells
from mlxspec_app.text.tagged_lines import Line, Run

GUTTER = 2
PREFIX = "token-message--"
_BLOCK_BAR = "\u2502"
_PROMPT_SIGN = "\u276f "
_NO_STYLE = Style()
_NO_UNDERLINE = Style(underline=False)
_UNDERLINE = Style(underline=True)
_WEIGHTS = {Tone.QUIET: "mark", Tone.LOUD: "strong", Tone.ITALIC: "emphasis"}


class Painter:
    """Paints the rows of one message.

    The tag of a character in the document is the index of its span.
    """

    def __init__(self, widget: Widget, view: View, *, is_user: bool) -> None:
        self.spans: list[Span] = []
        self.view = view
        self.ink = INKS[0]
        self.pointed: int | None = None
        self.is_exact = False
        self._is_user = is_user
        self._widget = widget
        self._styles: dict[tuple[str, str, Tone, bool], Style] = {}

    def forget_styles(self) -> None:  # after a change of the theme
        self._styles.clear()

    def paint(self, document: Document, y: int) -> list[Strip]:
        """Return the parts of a row, from the left margin to the end of its text."""
        row = document.rows[y]
        drawn = (each for each in row.pieces if each.line >= 0)
        runs = [
            run
            for each in drawn
            for run in document.lines[each.line].runs(each.start, each.start + len(each.text))
        ]
        strips = [self._piece(document.lines, piece) for piece in row.pieces]
        parts = [Strip(self._gutter(y, row, runs)), *strips]
        if cells(row.pieces) > document.width:  # spaces may stand past the edge
            parts = [Strip.join(parts).crop(0, GUTTER + document.width)]
        return parts

    def part_style(self, name: str) -> Style:
        return self._widget.get_component_rich_style(PREFIX + name)

    def mixed(self, name: str, band: str, tone: Tone, is_aside: bool = False) -> Style:
        """Return the style of an ink or a tint with what Markdown adds; an aside is no answer."""
        style = self._widget.rich_style
        if Tone.CODE in tone:
            style += self._own_style("code", "bgcolor")
        shown = Tone.ITALIC if Tone.CODE in tone else Tone.ITALIC | Tone.LOUD
        for part, added in _WEIGHTS.items():
            if part in tone and (self.is_exact or part in shown):
                style += self._own_style(added, "bold", "italic", "dim")
        style += self._own_style(name, "color", "bold", "italic", "underline")
        if is_aside:
            style += self._own_style("reasoning", "dim", "italic")
        if Tone.STRIKE in tone:
            style += Style(strike=True)
        return style + self._own_style(band, "bgcolor") if band else style

    @property
    def _has_backgrounds(self) -> bool:
        """Whether backgrounds are distinguishable: there are colours, and they are our own."""
        app = self._widget.app
        return not (app.no_color or app.native_ansi_color)

    @property
    def _has_bands(self) -> bool:
        return self.is_exact and self.ink.bands and not self._is_user

    def _own_style(self, name: str, *attributes: str) -> Style:
        """Return a style with these attributes of a part; unset ones override nothing."""
        style = self.part_style(name)
        return Style(**{key: getattr(style, key) or None for key in attributes})

    def _selection_style(self) -> Style:
        if not self._has_backgrounds:
            return Style(reverse=True)
        screen = self._widget.screen
        return Style(bgcolor=screen.get_component_rich_style("screen--selection").bgcolor)

    def _piece(self, lines: Sequence[Line], piece: Piece) -> Strip:
        widget = self._widget
        shown = sign(widget.app, piece.text) if Tone.SIGN in piece.tone else piece.text
        if piece.line < 0:
            return Strip([Segment(shown, self._style(piece.tone, None))])
        line, end = lines[piece.line], piece.start + len(piece.text)
        if line.text[piece.start : end] != piece.text:  # a sign replaces its Markdown source
            style = self._run_style(piece.tone, line.tag_at(piece.start))
            return Strip([Segment(shown, style)]).apply_offsets(piece.start, piece.line)
        chosen = _chosen_in(piece.line, end, widget.text_selection)
        selection = self._selection_style() if chosen else _NO_STYLE
        has_ticks = self._has_bands and not self._has_backgrounds
        segments: list[Segment] = []
        for run in line.runs(piece.start, end):
            style = self._run_style(piece.tone, run.tag)
            drawn = draw_run(line.text, run, chosen, style, selection)
            is_ticked = has_ticks and opens_round(line, run, self.spans)
            segments += with_tick(drawn) if is_ticked else drawn
        return Strip(segments).apply_offsets(piece.start, piece.line)

    def _gutter(self, y: int, row: ShownRow, runs: Sequence[Run]) -> list[Segment]:
        """Return the prompt sign, or the drafted share and a bar at code, quotes and reasoning."""
        app, style = self._widget.app, self.part_style("gutter")
        if self._is_user:
            is_pointed = y == 0 and self.pointed is not None
            prompt_sign = sign(app, _PROMPT_SIGN) if y == 0 else " " * GUTTER
            return [Segment(prompt_sign, style + Style(reverse=is_pointed))]
        is_aside = bool(runs) and all(self.spans[run.tag].channel != "answer" for run in runs)
        is_set_apart = is_aside or (self.is_exact and (row.is_code or row.is_quote))
        bar = Segment(sign(app, _BLOCK_BAR) if is_set_apart else " ", style)
        share = self._accepted_share(runs) if self._has_bands else 0.0
        return [Segment(sign(app, block(share)), self.part_style("share")), bar]

    def _accepted_share(self, runs: Sequence[Run]) -> float:
        """Return the share of the characters of a row that came from accepted draft tokens."""
        total = sum(run.end - run.start for run in runs)
        accepted = [run for run in runs if self.spans[run.tag].kind == "accepted"]
        return sum(run.end - run.start for run in accepted) / total if total else 0.0

    def _run_style(self, tone: Tone, tag: int) -> Style:
        style = self._style(tone, self.spans[tag])
        is_pointed = tag == self.pointed and not self._is_user
        return style + Style(reverse=True) if is_pointed else style

    def _style(self, tone: Tone, span: Span | None) -> Style:
        is_aside = span is not None and span.channel != "answer"
        key = (self._name(tone, span), self._band(span), tone, is_aside)
        if key not in self._styles:
            self._styles[key] = self.mixed(*key)
        return self._styles[key]

    def _name(self, tone: Tone, span: Span | None) -> str:
        """Return the part that colours a span: of the ink, or its tint in a lightness."""
        if self._is_user:
            return "plain"
        if self.is_exact and span is not None:
            return self.ink.style_of(span)
        is_guess = span is not None and span.kind == "accepted"
        level = "-loud" if Tone.LOUD in tone else "-quiet" if Tone.QUIET in tone else ""
        return ("guess" if is_guess else "own") + level

    def _band(self, span: Span | None) -> str:
        if not self._has_bands or span is None or span.kind in (None, "plain", "kept"):
            return ""
        return ("band-b", "band-a")[span.round % 2]


def draw_run(
    text: str, run: Run, chosen: range, style: Style, selection_style: Style
) -> list[Segment]:
    """Return a run of the line `text` in pieces: its leading space, its word, and what is chosen.

    The space before a word is not underlined.
    """
    word = run.start
    if style.underline:
        word = run.end - len(text[run.start : run.end].lstrip(" "))
    inside = {edge for edge in (word, chosen.start, chosen.stop) if run.start < edge < run.end}
    pieces = []
    for start, end in pairwise(sorted({run.start, run.end} | inside)):
        piece_style = style if start >= word else style + _NO_UNDERLINE
        if start in chosen:
            piece_style += selection_style
        pieces.append(Segment(text[start:end], piece_style))
    return pieces


def opens_round(line: Line, run: Run, spans: Sequence[Span]) -> bool:
    """Return whether a run starts a round other than the first of its message.

    Of adjacent plain rounds, which have one token each, only the first counts. A row can break
    after the leading space of a token: the space is then invisible at the end of the previous row,
    and the word of the same token starts the round.
    """
    if run.tag == 0 or spans[run.tag].round == spans[run.tag - 1].round:
        return False
    if spans[run.tag].kind == spans[run.tag - 1].kind == "plain":
        return False
    start = run.start
    while start and line.text[start - 1] == " " and line.tag_at(start - 1) == run.tag:
        start -= 1
    return start == 0 or line.tag_at(start - 1) != run.tag


def with_tick(pieces: Sequence[Segment]) -> list[Segment]:
    """Return a run with its first character that is no space underlined: a round starts here."""
    ticked: list[Segment] = []
    is_done = False
    for text, style, _ in pieces:
        start = len(text) - len(text.lstrip(" "))
        if is_done or start == len(text):
            ticked.append(Segment(text, style))
            continue
        end = start + split_graphemes(text[start:])[0][0][1]  # a grapheme cluster is not split
        line = style + _UNDERLINE if style is not None else _UNDERLINE
        parts = [(text[:start], style), (text[start:end], line), (text[end:], style)]
        ticked += [Segment(part, look) for part, look in parts if part]
        is_done = True
    return ticked


def _chosen_in(line: int, last: int, selection: Selection | None) -> range:
    """Return the selected characters of a line; `last` ends a selection that continues below."""
    span = selection.get_span(line) if selection is not None else None
    if span is None:
        return range(0)
    start, end = span
    return range(start, last if end == -1 else end)
