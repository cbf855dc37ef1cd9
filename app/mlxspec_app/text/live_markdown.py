"""Styles Markdown while a reply grows: it changes weights and backgrounds, never characters.

The look of a logical line depends on its text and on the fence that is open before it, so new text
is scanned from the last line on. A construct is at most `_REACH` characters long, so only the last
`_REACH` characters of the line are scanned again: the cost of a token depends neither on the length
of the message nor on the length of the line.

The styling is light: marks stay visible, and a construct counts once it is complete, in one line.
"""

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Flag, auto
from typing import NamedTuple

from mlxspec.trace.difference import common_length
from mlxspec_app.text.code_blocks import fence_after
from mlxspec_app.text.tagged_lines import Line

_LONGEST = 240  # characters between the marks of a construct
_REACH = 2 * _LONGEST + 16  # a link has two such parts; 16 for the marks
_LONGEST_RULE = 200


class Look(Flag):
    """The look of characters in Markdown; a run of text can have several."""

    PLAIN = 0
    MARK = auto()
    STRONG = auto()
    EMPHASIS = auto()
    CODE = auto()


class Piece(NamedTuple):
    """Adjacent characters of a line with one look."""

    start: int
    end: int
    look: Look


@dataclass
class LineLook:
    """The look of a logical line.

    `pieces` leaves plain characters out. `is_code` is true for the fences of a code block too.
    `fence` is the fence that is open after the line, or "".
    """

    pieces: list[Piece] = field(default_factory=list)
    is_code: bool = False
    is_quote: bool = False
    fence: str = ""


PLAIN_LINE = LineLook()

_HEADING = re.compile(r" {0,3}#{1,6}(?= |$)")
_QUOTE = re.compile(r" {0,3}(?:> ?)+")
_BULLET = re.compile(r"\s*(?:[-*+]|\d{1,9}[.)])(?= )")
_RULE = re.compile(r" {0,3}([-*_])(?: *\1){2,} *")
_TABLE_RULE = set(" :|-")
_INLINE = re.compile(
    r"(?<![`\\])(?P<code>`{1,2})(?!`)[^`](?:.{0,N}?[^`])??(?P=code)(?!`)"
    r"|(?<![*\\])(?P<both>\*{3})(?=[^\s*]).{1,N}?(?<=[^\s*])\*{3}(?!\*)"
    r"|(?<![*\\])(?P<strong>\*\*)(?=[^\s*]).{1,N}?(?<=\S)\*\*(?!\*)"
    r"|(?<![\w\\])(?P<strong_>__)(?=[^\s_]).{1,N}?(?<=\S)__(?!\w)"
    r"|(?<![*\w\\])(?P<emphasis>\*)(?=[^\s*]).{1,N}?(?<=[^\s*])\*(?![*\w])"
    r"|(?<![\w\\])(?P<emphasis_>_)(?=[^\s_]).{1,N}?(?<=[^\s_])_(?!\w)"
    r"|(?<!\\)\[(?P<link>[^\[\]]{1,N})\]\([^()\s]{1,N}\)".replace("N", str(_LONGEST))
)
_LOOKS = {
    "code": Look.CODE,
    "both": Look.STRONG | Look.EMPHASIS,
    "strong": Look.STRONG,
    "emphasis": Look.EMPHASIS,
    "link": Look.STRONG,
}


class LiveMarkdown:
    """The looks of a text that grows, one for each logical line."""

    def __init__(self) -> None:
        self.lines: list[LineLook] = []
        self._scan = _LineScan()

    def update(self, lines: Sequence[Line]) -> int | None:
        """Scan the new text at the end of the last scanned line, and the lines after it.

        `lines` are all logical lines of the text. Return the index of the first character of the
        last scanned line whose look changed, or None.
        """
        first = max(0, len(self.lines) - 1)
        before = self.lines.pop() if self.lines else PLAIN_LINE
        for number in range(first, len(lines)):
            self.lines.append(self._look(number, lines[number].text))
        return _first_difference(before, self.lines[first])

    def cut(self, num_lines: int) -> None:
        """Forget the looks from line `num_lines - 1` on."""
        del self.lines[max(0, num_lines - 1) :]
        self._scan = _LineScan()

    def _look(self, number: int, text: str) -> LineLook:
        fence = self.lines[number - 1].fence if number else ""
        after = fence_after(text, fence)
        if fence or after:
            pieces = [] if fence and after else [Piece(0, len(text), Look.MARK)]
            return LineLook(pieces, is_code=True, fence=after)
        if self._scan.number != number:
            self._scan = _LineScan(number)
        return self._scan.look(text)


@dataclass
class _LineScan:
    """Progress of the scan of a growing line of prose.

    `number` is -1 before the first line. `found` holds each construct as adjacent pieces.
    """

    number: int = -1
    length: int = 0
    opening: "_Opening | None" = None
    found: list[list[Piece]] = field(default_factory=list)

    def look(self, text: str) -> LineLook:
        opening = _opening(text)
        if opening != self.opening:
            self.opening, self.length, self.found = opening, 0, []
        start = max(opening.end, self.length - _REACH)
        self.length = len(text)
        # New text can change a construct that reaches into the scanned part: scan it whole again.
        while self.found and self.found[-1][-1].end > start:
            start = max(opening.end, min(start, self.found.pop()[0].start))
        self.found += _constructs(text, start, len(text), opening.look)
        pieces = [*opening.pieces, *_filled(self.found, opening, len(text))]
        return LineLook(pieces, is_quote=opening.is_quote)


class _Opening(NamedTuple):
    """The start of a line: marks of a heading, quote or list, and the index where prose starts."""

    end: int = 0
    look: Look = Look.PLAIN
    is_quote: bool = False
    pieces: tuple[Piece, ...] = ()


def pieces_in(look: LineLook, start: int, end: int) -> Iterator[Piece]:
    """Yield the pieces between the characters `start` and `end` of a line, plain ones too."""
    first = bisect_right(look.pieces, start, key=lambda piece: piece.end)
    for piece in look.pieces[first:]:
        if piece.start >= end:
            break
        if piece.start > start:
            yield Piece(start, min(end, piece.start), Look.PLAIN)
        yield Piece(max(start, piece.start), min(end, piece.end), piece.look)
        start = piece.end
    if start < end:
        yield Piece(start, end, Look.PLAIN)


def _opening(text: str) -> _Opening:
    if len(text) <= _LONGEST_RULE and _is_rule(text):
        return _Opening(len(text), pieces=(Piece(0, len(text), Look.MARK),))
    if heading := _HEADING.match(text):
        hashes = Piece(0, heading.end(), Look.MARK | Look.STRONG)
        return _Opening(heading.end(), Look.STRONG, pieces=(hashes,))
    if quote := _QUOTE.match(text):
        return _Opening(quote.end(), Look.PLAIN, True, (Piece(0, quote.end(), Look.MARK),))
    if bullet := _BULLET.match(text):
        return _Opening(bullet.end(), pieces=(Piece(0, bullet.end(), Look.STRONG),))
    return _Opening()


def _is_rule(text: str) -> bool:
    """Return whether a line is a horizontal rule, or the rule below the header of a table."""
    is_table_rule = "|" in text and "-" in text and _TABLE_RULE.issuperset(text)
    return is_table_rule or _RULE.fullmatch(text) is not None


def _constructs(text: str, start: int, end: int, outer: Look) -> Iterator[list[Piece]]:
    for found in _INLINE.finditer(text, start, end):
        name = str(found.lastgroup).rstrip("_")
        look = outer | _LOOKS[name]
        if name == "link":
            inner = found.span("link")
        else:
            marks = len(found[str(found.lastgroup)])
            inner = found.start() + marks, found.end() - marks
        inside = [Piece(*inner, look)]
        if name in ("both", "strong", "link"):
            inside = _covered(list(_constructs(text, *inner, look)), *inner, look)
        yield [
            Piece(found.start(), inner[0], look | Look.MARK),
            *inside,
            Piece(inner[1], found.end(), look | Look.MARK),
        ]


def _filled(found: list[list[Piece]], opening: _Opening, end: int) -> list[Piece]:
    """Return the pieces of constructs and, between them, pieces in the look of the opening."""
    if not opening.look:
        return [piece for construct in found for piece in construct]
    return _covered(found, opening.end, end, opening.look)


def _covered(found: list[list[Piece]], start: int, end: int, look: Look) -> list[Piece]:
    """Return pieces from `start` to `end` without a gap; text outside constructs has `look`."""
    pieces = []
    for construct in found:
        if construct[0].start > start:
            pieces.append(Piece(start, construct[0].start, look))
        pieces += construct
        start = construct[-1].end
    return [*pieces, Piece(start, end, look)] if start < end else pieces


def _first_difference(old: LineLook, new: LineLook) -> int | None:
    if (old.is_code, old.is_quote) != (new.is_code, new.is_quote):
        return 0
    same = common_length(old.pieces, new.pieces)
    rest = [*old.pieces[same : same + 1], *new.pieces[same : same + 1]]
    return min(piece.start for piece in rest) if rest else None
