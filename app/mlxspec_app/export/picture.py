"""A picture of the coloured conversation, SVG; and what every picture is made of.

Every run of characters has the coordinates of its own cell, so the fonts of another machine cannot
shift a line. A picture loads no files and runs no scripts. It has rules for the reader's light and
dark scheme, both written out, because not every renderer supports CSS variables.
"""

from collections.abc import Callable, Iterator, Sequence
from html import escape
from itertools import groupby
from typing import get_args

from rich.cells import cell_len

from mlxspec_app.conversation.views import StyleName
from mlxspec_app.export.looks import colours
from mlxspec_app.export.recording import Recording
from mlxspec_app.export.scene import Piece, Row, Scene
from mlxspec_app.text.safe_text import safe_line
from mlxspec_app.themes.looks import LOOKS

WIDTH = 80
CELL, ROW = 8.43, 21  # pixels; a monospaced glyph is 0.602 of the font size
MARGIN, HEAD = 26, 42
ASCENT = 15  # pixels from the top of a row to its baseline
_SIZE = 14
_FONTS = "ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono','Liberation Mono',monospace"
_NOT_XML = dict.fromkeys((0xFFFE, 0xFFFF), "\ufffd")  # XML allows them neither raw nor escaped
_SIGNS: dict[StyleName, str] = {"accepted": "✓", "corrected": "→", "bonus": "✚", "plain": "·"}
_KEPT: dict[StyleName, str] = {"kept": "="}


def render(recording: Recording, width: int = WIDTH) -> str:
    """Return the conversation as SVG, `width` cells wide, coloured by the kind of each token."""
    rows = [*Scene(recording, width).rows, *legend_rows(width)]
    high = 2 * MARGIN + HEAD + (len(rows) - 1) * ROW
    top = MARGIN + HEAD
    drawn = [shape for n, row in enumerate(rows) for shape in shapes(row, top + n * ROW)]
    return document(recording.title, (page_width(width), high), [], drawn)


def document(title: str, size: tuple[int, int], style: Sequence[str], body: Sequence[str]) -> str:
    """Return an SVG file of `size` (width, height) pixels: the page, its title and the shapes."""
    wide, high = size
    name = escaped(safe_line(title))
    rules = "\n".join([*_rules(), *style])
    drawn = "\n".join(body)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {high}" width="{wide}" '
        f'height="{high}" role="img" aria-label="{name}">\n<title>{name}</title>\n'
        f"<style>\n{rules}\n</style>\n"
        f'<rect class="page" x="0.5" y="0.5" width="{wide - 1}" height="{high - 1}" rx="10"/>\n'
        f'<text class="muted" x="{MARGIN}" y="{MARGIN + 4}">{name}</text>\n'
        f'<path class="edge" d="M{MARGIN} {MARGIN + 16}H{wide - MARGIN}"/>\n'
        f"{drawn}\n</svg>\n"
    )


def page_width(width: int) -> int:
    """Return the width in pixels of a page with rows of `width` cells."""
    return round(2 * MARGIN + width * CELL)


def escaped(text: str) -> str:
    """Return the text escaped for XML."""
    return escape(text.translate(_NOT_XML))


def schemes(paint: Callable[[dict[str, str]], list[str]]) -> list[str]:
    """Return the rules in the colours of the dark theme, then those for a light scheme."""
    light = "".join(paint(colours(dark=False)))
    return [*paint(colours(dark=True)), f"@media (prefers-color-scheme:light){{{light}}}"]


def legend_rows(width: int, *, has_kept: bool = False) -> list[Row]:
    """Return the signs of the kinds of tokens, in rows of at most `width` cells.

    `has_kept` adds the sign of kept tokens, with which a branch starts.
    """
    rows, column = [Row()], 0
    for kind, sign in (_SIGNS | _KEPT if has_kept else _SIGNS).items():
        text = f"{sign} {kind}"
        if column and column + len(text) > width:
            rows.append(Row())
            column = 0
        rows[-1].append(Piece(column, text, kind))
        column += len(text) + 3
    return rows


def shapes(row: Row, top: int) -> Iterator[str]:
    """Yield the shapes of pieces whose baseline is `top` pixels down: backgrounds, then words."""
    for number, pieces in groupby((piece for piece in row if piece.text), lambda p: p.round):
        if number:
            yield _band(list(pieces), top)
    for word in (piece.word for piece in row):
        if word is not None:
            yield (
                f'<text class="{word.look}" x="{MARGIN + word.column * CELL:.2f}" y="{top}" '
                f'textLength="{cell_len(word.text) * CELL:.2f}" xml:space="preserve">'
                f"{escaped(word.text)}</text>"
            )


def _band(pieces: Row, top: int) -> str:
    first, last = pieces[0], pieces[-1]
    return (
        f'<rect class="band-{2 - first.round % 2}" x="{MARGIN + first.column * CELL:.2f}" '
        f'y="{top - ASCENT}" width="{(last.end - first.column) * CELL:.2f}" height="{ROW}"/>'
    )


def _rules() -> list[str]:
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
    return [*base, *schemes(_paint)]


def _paint(tint: dict[str, str]) -> list[str]:
    rules = [
        f".page{{fill:{tint['page']};stroke:{tint['line']}}}",
        f".edge{{stroke:{tint['line']}}}",
        f".said{{fill:{tint['text']}}}",
        f".muted{{fill:{tint['muted']}}}",
        f".band-1{{fill:{tint['band-a']}}}",
        f".band-2{{fill:{tint['band-b']}}}",
    ]
    return rules + [f".{name}{{fill:{tint[LOOKS[name].colour]}}}" for name in get_args(StyleName)]
