"""A picture of the coloured conversation: plain SVG that follows the reader's light or dark scheme.

Every run of characters is placed at its own cell, so the fonts of another machine cannot shift a
line. The picture loads nothing; its rules are written out for both schemes because not every
renderer knows variables.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import get_args

from rich.cells import cell_len

from mlxspec_app.conversation.figures import reply_figures
from mlxspec_app.conversation.inks import INKS, StyleName
from mlxspec_app.conversation.messages import Message, Reply
from mlxspec_app.export.looks import LOOKS, colours
from mlxspec_app.export.recording import Recording, written_by_round
from mlxspec_app.text.safe_text import safe_line, safe_text
from mlxspec_app.text.wrap import WrappedText

WIDTH = 80
_CELL, _ROW, _SIZE = 8.43, 21, 14  # pixels; a monospaced glyph is 0.602 of the font size
_MARGIN, _HEAD = 26, 42
_FONTS = "ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono','Liberation Mono',monospace"
_SAID = "\u276f "
_NOT_XML = dict.fromkeys((0xFFFE, 0xFFFF), "\ufffd")  # no escape exists for these
_KINDS: tuple[StyleName, ...] = ("accepted", "corrected", "bonus", "plain")
_SIGNS = {"accepted": "✓", "corrected": "→", "bonus": "✚", "plain": "·"}


@dataclass
class _Piece:
    """Characters of a row that look the same.

    Attributes:
        column: Cell that they begin in.
        text: The characters.
        look: Name of a rule.
        band: 1 or 2 for the background of an odd or an even round, 0 for none.
    """

    column: int
    text: str
    look: str
    band: int = 0


@dataclass
class _Row:
    pieces: list[_Piece] = field(default_factory=list)


def render(recording: Recording, width: int = WIDTH) -> str:
    """Return the conversation as SVG, `width` cells wide, coloured by who wrote each token."""
    rows = [row for message in recording.messages for row in _message(message, width)]
    rows += _legend(width)
    wide = round(2 * _MARGIN + width * _CELL)
    high = 2 * _MARGIN + _HEAD + (len(rows) - 1) * _ROW
    title = _escaped(safe_line(recording.title))
    body = "\n".join(shape for number, row in enumerate(rows) for shape in _draw(row, number))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {high}" width="{wide}" '
        f'height="{high}" role="img" aria-label="{title}">\n<title>{title}</title>\n'
        f"<style>\n{_rules()}\n</style>\n"
        f'<rect class="page" x="0.5" y="0.5" width="{wide - 1}" height="{high - 1}" rx="10"/>\n'
        f'<text class="muted" x="{_MARGIN}" y="{_MARGIN + 4}">{title}</text>\n'
        f'<path class="edge" d="M{_MARGIN} {_MARGIN + 16}H{wide - _MARGIN}"/>\n'
        f"{body}\n</svg>\n"
    )


def _escaped(text: str) -> str:
    return escape(text.translate(_NOT_XML))


def _rules() -> str:
    base = [
        f"text{{font:{_SIZE}px {_FONTS};white-space:pre}}",
        ".edge{fill:none;stroke-width:1}",
        ".said{font-weight:700}",
    ]
    for name in get_args(StyleName):
        look = LOOKS[name]
        twins = "font-weight:700;" if look.bold else ""
        twins += "font-style:italic;" if look.italic else ""
        twins += "text-decoration:underline;" if look.underline else ""
        base += [f".{name}{{{twins}}}"] if twins else []
    light = "".join(_paint(dark=False))
    return "\n".join([*base, *_paint(dark=True), f"@media (prefers-color-scheme:light){{{light}}}"])


def _paint(*, dark: bool) -> list[str]:
    tint = colours(dark=dark)
    rules = [
        f".page{{fill:{tint['page']};stroke:{tint['line']}}}",
        f".edge{{stroke:{tint['line']}}}",
        f".said{{fill:{tint['text']}}}",
        f".muted{{fill:{tint['muted']}}}",
        f".band-1{{fill:{tint['band-a']}}}",
        f".band-2{{fill:{tint['band-b']}}}",
    ]
    return rules + [f".{name}{{fill:{tint[LOOKS[name].colour]}}}" for name in get_args(StyleName)]


def _message(message: Message, width: int) -> Iterator[_Row]:
    if not isinstance(message, Reply):
        yield from _lines(message.text, width - 2, "said", first=_SAID, rest="  ")
        yield _Row()
        return
    yield from _reply(message, width)
    yield _Row()
    figures = [part.text for part in reply_figures(message)]
    figures += [message.error] if message.error else []
    yield from _lines(" · ".join(figures), width, "muted")
    yield _Row()


def _reply(reply: Reply, width: int) -> Iterator[_Row]:
    wrapped = WrappedText(width)
    looks: list[tuple[str, int]] = []
    for number, written in enumerate(written_by_round(reply)):
        for _, span in written:
            looks.append((INKS[0].style_of(span), 1 + number % 2))
            wrapped.append(safe_text(span.text), len(looks) - 1)
    for row in wrapped.rows:
        text, column = wrapped.lines[row.line].text, 0
        drawn = _Row()
        for run in wrapped.runs(row):
            piece = text[run.start : run.end]
            drawn.pieces.append(_Piece(column, piece, *looks[run.tag]))
            column += cell_len(piece)
        yield drawn


def _lines(text: str, width: int, look: str, first: str = "", rest: str = "") -> Iterator[_Row]:
    wrapped = WrappedText(width)
    wrapped.append(safe_text(text))
    for number, row in enumerate(wrapped.rows):
        yield _Row([_Piece(0, (rest if number else first) + wrapped.row_text(row), look)])


def _legend(width: int) -> list[_Row]:
    """Return the signs of who wrote a token, in as many rows as the width needs."""
    rows, column = [_Row()], 0
    for kind in _KINDS:
        text = f"{_SIGNS[kind]} {kind}"
        if column and column + len(text) > width:
            rows.append(_Row())
            column = 0
        rows[-1].pieces.append(_Piece(column, text, kind))
        column += len(text) + 3
    return rows


def _draw(row: _Row, number: int) -> Iterator[str]:
    top = _MARGIN + _HEAD + number * _ROW
    shown = [piece for piece in row.pieces if piece.text]
    for left, cells, band in _bands(shown):
        yield (
            f'<rect class="band-{band}" x="{_MARGIN + left * _CELL:.2f}" y="{top - 15}" '
            f'width="{cells * _CELL:.2f}" height="{_ROW}"/>'
        )
    for piece in shown:
        word = piece.text.strip(" ")
        if word:
            column = piece.column + len(piece.text) - len(piece.text.lstrip(" "))
            yield (
                f'<text class="{piece.look}" x="{_MARGIN + column * _CELL:.2f}" y="{top}" '
                f'textLength="{cell_len(word) * _CELL:.2f}" xml:space="preserve">'
                f"{_escaped(word)}</text>"
            )


def _bands(pieces: Sequence[_Piece]) -> Iterator[tuple[int, int, int]]:
    """Yield (first cell, number of cells, band) of neighbouring pieces with one background."""
    start = end = band = 0
    for piece in pieces:
        if piece.band != band or piece.column != end:
            if band:
                yield start, end - start, band
            start, band = piece.column, piece.band
        end = piece.column + cell_len(piece.text)
    if band:
        yield start, end - start, band
