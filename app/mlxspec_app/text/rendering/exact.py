"""The exact text with the tones of its Markdown: every character is shown, marks are quiet.

It follows from how the text is rendered: each piece knows the characters of the source that it
shows, and what no piece shows is a mark.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence

from mlxspec_app.text.rendering.blocks import QUOTE
from mlxspec_app.text.rendering.pieces import Piece, Shown, ShownLine, Table, Tone

_FENCE = re.compile(r"[\s>]*(?:`{3}|~{3})")


def exact_lines(
    parts: Iterable[Shown], lines: Sequence[str], first: int, *, is_code: bool = False
) -> list[ShownLine]:
    """Return lines as they are written; `parts` are the same lines as they are rendered.

    `is_code` says of a line without a part that it is in a block of code, such as its fence.
    """
    pieces: dict[int, list[Piece]] = defaultdict(list)
    code, quotes, shown = set[int](), set[int](), set[int]()
    for part in parts:
        shown.add(part.line)
        if isinstance(part, Table):
            found = [piece for row in part.cells for cell in row for piece in cell]
        elif isinstance(part, ShownLine):
            signs = (sign._replace(tone=Tone.LOUD | Tone.SIGN) for sign in part.lead)
            found = [*signs, *part.pieces]
            code |= {part.line} if part.is_code else set()
            quotes |= {part.line} if QUOTE in part.lead else set()
        else:
            continue
        for piece in found:
            pieces[piece.line].append(piece)
    rows = []
    for number, text in enumerate(lines, first):
        is_block = number in code or (number not in shown and (is_code or bool(_FENCE.match(text))))
        is_fence = is_block and bool(_FENCE.match(text))
        filled = with_marks([] if is_fence else pieces[number], text, number, is_code=is_block)
        rows.append(ShownLine(number, filled, is_code=is_block, is_quote=number in quotes))
    return rows


def with_marks(
    pieces: Iterable[Piece], text: str, line: int, start: int = 0, *, is_code: bool = False
) -> tuple[Piece, ...]:
    """Return all of a text in pieces, the given ones and the marks between them.

    `start` is the index of the text in its logical line.
    """
    found: list[Piece] = []
    at = start
    block = Tone.CODE if is_code else Tone.PLAIN
    end_of_all = Piece("", line, start + len(text))
    for piece in (*sorted(pieces, key=lambda piece: piece.start), end_of_all):
        end = piece.start + len(piece.text)
        source = text[piece.start - start : end - start]
        if piece.start < at or not (source == piece.text or Tone.SIGN in piece.tone):
            continue  # a character that stands for its escape
        if mark := text[at - start : piece.start - start]:
            tone = Tone.QUIET if mark.strip() else Tone.PLAIN
            _add(found, Piece(mark, line, at, tone | block))
        if source:
            tone = Tone.CODE if is_code else piece.tone & ~Tone.SIGN
            _add(found, Piece(source, line, piece.start, tone))
        at = end
    return tuple(found)


def _add(found: list[Piece], piece: Piece) -> None:
    """Add a piece, to the one before it if they look the same."""
    if found and found[-1].tone == piece.tone:
        found[-1] = found[-1]._replace(text=found[-1].text + piece.text)
    else:
        found.append(piece)
