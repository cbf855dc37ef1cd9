"""Blocks of Markdown as shown lines: headings, lists, quotes, tables, code.

markdown-it finds the block to which a line belongs. Each logical line of the source stays a
separate line, as in a poem; lines that consist of marks only are not shown.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from mlxspec_app.text.rendering.code import ROOT, State, lex_line
from mlxspec_app.text.rendering.inline import inline_lines, parser
from mlxspec_app.text.rendering.pieces import (
    Align,
    Cell,
    Piece,
    Rule,
    Shown,
    ShownLine,
    Table,
    Tone,
)

if TYPE_CHECKING:
    from markdown_it.token import Token

_QUIET = Tone.QUIET | Tone.SIGN
QUOTE = Piece("│ ", tone=_QUIET)
_BULLETS = "-*+"
_HEADINGS = {"h1": "━━ ", "h2": "── "}
_LOWER_HEADING = "─ "
_ALIGNS: dict[str, Align] = {"text-align:right": "right", "text-align:center": "center"}


@dataclass(frozen=True)
class OpenFence:
    """A code block that has no end yet, and the state of its lexer."""

    line: int
    marks: str
    language: str
    lead: tuple[Piece, ...]  # before each of its rows
    indent: int  # characters before the fence, which its lines have too
    state: State = ROOT

    def is_closed_by(self, text: str) -> bool:
        marks = text.strip()
        return marks.startswith(self.marks) and set(marks) == {self.marks[0]}

    def code_line(self, text: str, line: int) -> tuple[ShownLine, "OpenFence"]:
        """Return a line inside the fence, and the fence after it."""
        start = min(self.indent, len(text) - len(text.lstrip(" ")))
        pieces, state = lex_line(self.language, text[start:], line, start, self.state)
        shown = ShownLine(line, tuple(pieces), self.lead, self.lead, is_code=True)
        return shown, replace(self, state=state)


@dataclass
class _Container:
    """A quote or a list item, and the pieces before its first row and before its other rows."""

    lead: tuple[Piece, ...]
    indent: tuple[Piece, ...]
    is_quote: bool = False


class Region:
    """Some lines of the source as they are shown."""

    def __init__(self, lines: Sequence[str], first: int, *, is_open: bool) -> None:
        """Parse lines, of which the first is the logical line `first`.

        `is_open` says whether text may follow the last one.
        """
        self.shown: list[Shown] = []
        self.starts: list[int] = []  # where an outermost block or list item starts
        self.fence: OpenFence | None = None  # the one open at the end, unless it is in a quote
        self._lines, self._first, self._is_open = lines, first, is_open
        self._covered: set[int] = set()
        self._containers: list[_Container] = []
        self._item_end = (0, 0)  # the last sign of a list: its line, and the index after it
        tokens = parser().parse("\n".join(lines))
        at = 0
        while at < len(tokens):
            at = self._take(tokens, at)
        self.shown += self._gaps()
        self.shown.sort(key=lambda shown: shown.line)  # stable: a block keeps its order
        types = [token.type for token in tokens]
        self.is_prose = types == ["paragraph_open", "inline", "paragraph_close"]

    def _take(self, tokens: Sequence["Token"], at: int) -> int:
        """Show the token at an index, or the block that it opens; return the next index."""
        token = tokens[at]
        is_item = token.type == "list_item_open" and token.level == 1
        if token.map and (is_item or (token.level == 0 and not token.type.endswith("list_open"))):
            self.starts.append(self._first + token.map[0])
        match token.type:
            case "blockquote_open":
                self._containers.append(_Container((QUOTE,), (QUOTE,), is_quote=True))
            case "list_item_open":
                self._containers.append(self._item(token))
            case "blockquote_close" | "list_item_close":
                self._containers.pop()
            case "heading_open":
                sign = _HEADINGS.get(token.tag, _LOWER_HEADING)
                self._prose(tokens[at + 1], Tone.LOUD, Piece(sign, tone=_QUIET))
                return at + 2
            case "inline":
                self._prose(token, Tone.PLAIN)
            case "hr":
                [line] = self._cover(token)
                self.shown.append(Rule(line))
            case "fence":
                self._code(token)
            case "table_open":
                end = next(i for i in range(at, len(tokens)) if tokens[i].type == "table_close")
                self._table(tokens[at:end])
                return end + 1
        return at + 1

    def _cover(self, token: "Token") -> range:
        """Return the logical lines of a token, and record that they are shown."""
        assert token.map is not None
        lines = range(self._first + token.map[0], self._first + token.map[1])
        self._covered.update(lines)
        return lines

    def _source(self, line: int) -> str:
        return self._lines[line - self._first]

    def _leads(self) -> tuple[tuple[Piece, ...], tuple[Piece, ...]]:
        """Return the pieces before the next row and before the rows after it."""
        leads = tuple(piece for each in self._containers for piece in each.lead)
        indents = tuple(piece for each in self._containers for piece in each.indent)
        for each in self._containers:
            each.lead = each.indent
        return leads, indents

    def _item(self, token: "Token") -> _Container:
        assert token.map is not None
        line, sign = self._first + token.map[0], token.info + token.markup
        before, after = self._item_end
        start = self._source(line).find(sign, after if before == line else 0)
        self._item_end = line, start + len(sign)
        shown = Piece(sign, line, start)
        if sign in _BULLETS:
            shown = Piece("•", line, start, Tone.SIGN)
        space = Piece(" " * (len(sign) + 1))
        return _Container((shown, Piece(" ")), (space,))

    def _prose(self, token: "Token", tone: Tone, *sign: Piece) -> None:
        lines = self._cover(token)
        texts = [text.strip() for text in token.content.split("\n")][: len(lines)]
        place = []
        for line, text in zip(lines, texts, strict=False):
            source = self._source(line).rstrip()
            start = len(source) - len(text) if source.endswith(text) else source.find(text)
            place.append((line, start))
        is_open = self._is_open and lines[-1] == self._first + len(self._lines) - 1
        rows = inline_lines(texts, place, is_open=is_open, tone=tone)
        for (line, _), pieces in zip(place, rows, strict=True):
            lead, indent = self._leads()
            rest = (*indent, *(Piece(" " * len(piece.text)) for piece in sign))
            self.shown.append(ShownLine(line, tuple(pieces), (*lead, *sign), rest))

    def _code(self, token: "Token") -> None:
        lines = self._cover(token)
        lead, indent = self._leads()
        opening = self._source(lines[0])
        start = opening.find(token.markup)
        fence = OpenFence(lines[0], token.markup, token.info.strip(), indent, start)
        if fence.language:
            start = opening.find(fence.language)
            label = Piece(fence.language, lines[0], start, Tone.QUIET | Tone.CODE)
            self.shown.append(ShownLine(lines[0], (label,), lead, indent, is_code=True))
        state = ROOT
        for line, text in zip(lines[1:], token.content.split("\n")[:-1], strict=False):
            start = max(0, len(self._source(line)) - len(text))
            pieces, state = lex_line(fence.language, text, line, start, state)
            self.shown.append(ShownLine(line, tuple(pieces), indent, indent, is_code=True))
        is_last = lines[-1] == self._first + len(self._lines) - 1
        is_closed = len(lines) > 1 and fence.is_closed_by(self._source(lines[-1]).lstrip("> "))
        if is_last and not is_closed and not any(each.is_quote for each in self._containers):
            self.fence = fence

    def _table(self, tokens: Sequence["Token"]) -> None:
        lines = self._cover(tokens[0])
        if self._is_open and lines[-1] == self._first + len(self._lines) - 1:
            self.shown += [ShownLine(line, self._raw(line)) for line in lines]
            return
        rows = list(_rows_of(tokens))
        shown = [self._cells(self._first + line, texts, lines[0]) for line, texts in rows]
        aligns = tuple(
            _ALIGNS.get(str(token.attrs.get("style", "")), "left")
            for token in tokens
            if token.type == "th_open"
        )
        numbers = tuple(self._first + line for line, _ in rows)
        self.shown.append(Table(lines[0], numbers, tuple(shown), aligns))

    def _cells(self, line: int, contents: Sequence[str], header: int) -> tuple[Cell, ...]:
        source, at = self._source(line), 0
        tone = Tone.LOUD if line == header else Tone.PLAIN
        row = []
        for content in contents:
            escaped = content.replace("|", "\\|")
            text = content if source.find(content, at) >= 0 else escaped
            start = max(at, source.find(text, at))
            [pieces] = inline_lines([text], [(line, start)], is_open=False, tone=tone)
            row.append(tuple(pieces))
            at = start + len(text)
        return tuple(row)

    def _raw(self, line: int) -> tuple[Piece, ...]:
        """Return a line of an incomplete table: its text, with a less visible frame."""
        source = self._source(line)
        is_rule = not source.strip(" :|-")
        pieces, at = [], 0
        for part in source.replace("|", "\0|\0").split("\0"):
            tone = Tone.QUIET if is_rule or part == "|" else Tone.PLAIN
            if part:
                pieces.append(Piece(part, line, at, tone))
            at += len(part)
        return tuple(pieces)

    def _gaps(self) -> Iterator[Shown]:
        """Yield the lines that no block shows: empty ones, and signs without text so far."""
        for line, source in enumerate(self._lines, self._first):
            if line not in self._covered:
                text = source.strip()
                sign = Piece("•" if text in _BULLETS and text else text, line, source.find(text))
                yield ShownLine(line, (sign._replace(tone=Tone.QUIET),) if text else ())


def _rows_of(tokens: Sequence["Token"]) -> Iterator[tuple[int, list[str]]]:
    """Yield the line and the cell texts of each row of a table."""
    line = 0
    cells: list[str] = []
    for token in tokens:
        if token.type == "tr_open" and token.map:
            line, cells = token.map[0], []
        elif token.type == "inline":
            cells.append(token.content)
        elif token.type == "tr_close":
            yield line, cells
