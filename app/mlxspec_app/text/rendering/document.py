"""The rows of a text that grows: complete parts stay, and the open end is parsed again.

All blocks but the last are complete, and so are all lines but the last of an open code block, and
the start of a very long paragraph. They are rendered once, so the cost of an update depends on the
open end of the text, not on its length. Marks record where parsing can start again.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Literal

from mlxspec.trace.difference import common_length
from mlxspec_app.text.rendering.blocks import OpenFence, Region
from mlxspec_app.text.rendering.exact import exact_lines, with_marks
from mlxspec_app.text.rendering.inline import closing_marks, inline_lines
from mlxspec_app.text.rendering.pieces import Piece, Shown, ShownLine, ShownRow, Tone
from mlxspec_app.text.safe_text import safe_text
from mlxspec_app.text.tagged_lines import Place, TaggedLines

Markup = Literal["rendered", "exact", "plain"]
"""Rendered Markdown, its exact characters in the tones of Markdown, or plain characters."""
_LONG_LINE = 400  # characters of a paragraph, before its start is taken as complete
_MANY_LINES = 24
_KEPT_OPEN = 160  # characters that stay open then
_LONGEST_OPEN = 2000  # characters after which an open mark is taken as text


@dataclass(frozen=True)
class _Mark:
    """A position in the source before which all is complete."""

    line: int = 0
    column: int = 0  # above 0 only inside a long paragraph
    num_shown: int = 0  # the complete parts before it
    num_rows: int = 0  # their rows
    begun: tuple[Piece, ...] = ()  # of that paragraph, before the column
    fence: OpenFence | None = None  # the code block that is open there

    @property
    def place(self) -> Place:
        return Place(self.line, self.column)


class Document:
    """The rows of a text, at least one, each at most `width` cells wide.

    Texts are added and removed at the end only; the time for both depends on the open end.
    """

    def __init__(self, width: int = 80, *, markup: Markup, is_open: bool = False) -> None:
        """Start empty; `is_open` says that more text will follow."""
        self.width = width
        self.rows: list[ShownRow] = [ShownRow(0, ())]
        self._source = TaggedLines()
        self.lines = self._source.lines  # the tag of a character is the number of its text
        self._markup = markup
        self._is_open = is_open
        self._shown: list[Shown] = []
        self._marks = [_Mark()]
        self._num_complete = 0

    def extend(self, texts: Sequence[str]) -> int:
        """Add texts at the end and return the index of the first row that changed."""
        for text in texts:
            self._source.append(safe_text(text))
        return self._update()

    def cut_to(self, num_texts: int) -> int:
        """Keep the first texts and return the index of the first row that changed."""
        place = self._source.cut(num_texts)
        while len(self._marks) > 1 and self._marks[-1].place > place:
            self._marks.pop()
        mark = self._marks[-1]
        del self._shown[mark.num_shown :]
        self._num_complete = mark.num_rows
        return self._update()

    def set_open(self, is_open: bool) -> int:
        """Set whether more text will follow; return the index of the first row that changed."""
        if is_open == self._is_open:
            return len(self.rows)
        self._is_open = is_open
        return self._update()

    def set_width(self, width: int) -> None:
        self.width = width
        parts = [part.rows(width) for part in self._shown]
        self.rows = [row for part in parts for row in part]
        totals = list(accumulate(map(len, parts), initial=0))
        self._marks = [
            replace(mark, num_rows=totals[mark.num_shown] + self._num_begun(mark))
            for mark in self._marks
        ]
        mark = self._marks[-1]
        self.rows += ShownLine(mark.line, mark.begun).rows(width)[:-1]
        self._num_complete = len(self.rows)
        self._update()

    def rows_of(self, text: int) -> range:
        """Return the rows that show a text, else the row in which it would be."""
        return self._rows_between(self._source.start_of(text), self._source.start_of(text + 1))

    def row_at(self, line: int, character: int) -> int:
        """Return the row that shows a character of the source, else the last one before it."""
        return self._rows_between(Place(line, character), Place(line, character + 1)).start

    def _rows_between(self, start: Place, end: Place) -> range:
        first = bisect_left(self.rows, start.line, key=lambda row: row.line)
        last = bisect_left(self.rows, end.line + 1, key=lambda row: row.line)
        found = [i for i in range(first, last) if _shows(self.rows[i], start, end)]
        near = min(first, len(self.rows) - 1)
        return range(found[0], found[-1] + 1) if found else range(near, near + 1)

    def _update(self) -> int:
        """Render the text after it has changed; return the index of the first changed row."""
        start = self._num_complete
        old = self.rows[start:]
        del self.rows[start:]
        while (shown := self._advance()) is None:
            pass
        self._num_complete = len(self.rows)
        self.rows += [row for part in shown for row in part.rows(self.width)]
        if self._markup == "rendered" and not self._is_open:
            while len(self.rows) > max(1, start) and not self.rows[-1].pieces:
                self.rows.pop()
        self.rows = self.rows or [ShownRow(0, ())]
        return start + common_length(old, self.rows[start:])

    def _as_shown(
        self, parts: Sequence[Shown], first: int, after: int, *, is_code: bool = False
    ) -> Sequence[Shown]:
        """Return the lines from `first` on as they are shown; `parts` are rendered."""
        if self._markup == "rendered":
            return parts
        lines = [line.text for line in self.lines[first:after]]
        return exact_lines(parts, lines, first, is_code=is_code)

    def _num_begun(self, mark: _Mark) -> int:
        return len(ShownLine(mark.line, mark.begun).rows(self.width)) - 1

    def _advance(self) -> Sequence[Shown] | None:
        """Complete the parts that can be; return the open ones, or None if there are more."""
        mark, lines, is_open = self._marks[-1], self.lines, self._is_open
        if mark.fence is not None:
            return self._advance_code(mark, mark.fence)
        if mark.column:
            return self._advance_line(mark)
        if self._markup == "plain":
            return self._advance_plain(mark)
        open_lines = [line.text for line in lines[mark.line :]]
        region = Region(open_lines, mark.line, is_open=is_open)
        last = len(lines) - 1
        if region.fence is not None and region.fence.line < last:
            fence = region.fence
            parts = [part for part in region.shown if part.line <= fence.line]
            self._complete(self._as_shown(parts, mark.line, fence.line + 1))
            self._mark(fence.line + 1, fence=fence)
            return None
        # a start in the last line can vanish as the line grows, unless a blank line is before it
        is_apart = last > mark.line and not lines[last - 1].text.strip()
        begin = max((n for n in region.starts if n < last + is_apart), default=mark.line)
        if is_open and begin == mark.line and region.is_prose:
            part = self._complete_part(mark)
            if part is None:
                return None
            begin = part
        if is_open and begin > mark.line:
            parts = [part for part in region.shown if part.line < begin]
            self._complete(self._as_shown(parts, mark.line, begin))
            self._mark(begin)
        start = begin if is_open else mark.line
        open_parts = [part for part in region.shown if part.line >= start]
        return self._as_shown(open_parts, start, len(lines))

    def _advance_plain(self, mark: _Mark) -> Sequence[Shown]:
        """Complete all lines but the last one, which may still grow."""
        lines = enumerate(self.lines[mark.line :], mark.line)
        *complete, last = (
            ShownLine(number, (Piece(line.text, number),) if line.text else ())
            for number, line in lines
        )
        if complete:
            self._complete(complete)
            self._mark(last.line)
        return [last]

    def _complete_part(self, mark: _Mark) -> int | None:
        """Return the line from which a paragraph stays open; None after completing a part of it."""
        lines, last = self.lines, len(self.lines) - 1
        if last - mark.line > _MANY_LINES:
            begin = last - _MANY_LINES // 2
            is_whole = not closing_marks("\n".join(line.text for line in lines[mark.line : begin]))
            return begin if is_whole else mark.line
        if last > mark.line or not self._complete_line(mark, lines[last].text):
            return mark.line
        return None

    def _complete_line(self, mark: _Mark, line: str) -> bool:
        """Complete the start of a long line, up to a word after which nothing is open."""
        text = line[mark.column :]
        end = text.rfind(" ", 0, len(text) - _KEPT_OPEN) + 1
        if len(text) < _LONG_LINE or end == 0:
            return False
        if len(text) < _LONGEST_OPEN and closing_marks(text[:end]):
            return False
        begun = (*mark.begun, *self._prose(mark, text[:end], is_open=False))
        rows = ShownLine(mark.line, begun).rows(self.width)[:-1]
        self.rows += rows[self._num_begun(mark) if mark.begun else 0 :]
        self._mark(mark.line, mark.column + end, begun)
        return True

    def _advance_line(self, mark: _Mark) -> Sequence[Shown] | None:
        """Continue a long paragraph whose start is complete."""
        line = self.lines[mark.line].text
        rest = line[mark.column :]
        if mark.line < len(self.lines) - 1:
            whole = ShownLine(mark.line, (*mark.begun, *self._prose(mark, rest, is_open=False)))
            del self.rows[len(self.rows) - self._num_begun(mark) :]
            self._complete([whole])
            self._mark(mark.line + 1)
            return None
        if self._is_open and self._complete_line(mark, line):
            return None
        tail = ShownLine(mark.line, mark.begun).rows(self.width)[-1].pieces
        pieces = self._prose(mark, rest, is_open=self._is_open)
        return [ShownLine(mark.line, (*tail, *pieces))]

    def _prose(self, mark: _Mark, text: str, *, is_open: bool) -> Sequence[Piece]:
        place = [(mark.line, mark.column)]
        pieces = inline_lines([text], place, is_open=is_open, tone=Tone.PLAIN)[0]
        if self._markup == "rendered":
            return pieces
        return with_marks(pieces, text, mark.line, mark.column)

    def _advance_code(self, mark: _Mark, fence: OpenFence) -> Sequence[Shown] | None:
        """Complete the lines of a code block except the last one, which may still grow."""
        lines, last = self.lines, len(self.lines) - 1
        complete: list[Shown] = []
        for number in range(mark.line, last):
            text = lines[number].text
            if fence.is_closed_by(text):
                self._complete(self._as_shown(complete, mark.line, number + 1, is_code=True))
                self._mark(number + 1)
                return None
            line, fence = fence.code_line(text, number)
            complete.append(line)
        if complete:
            self._complete(self._as_shown(complete, mark.line, last, is_code=True))
            self._mark(last, fence=fence)
        text = lines[last].text
        is_closing = bool(text.strip()) and not text.strip().strip(fence.marks[0])
        line, _ = fence.code_line(text, last)
        return self._as_shown([] if is_closing else [line], last, last + 1, is_code=True)

    def _complete(self, parts: Sequence[Shown]) -> None:
        self._shown += parts
        self.rows += [row for part in parts for row in part.rows(self.width)]

    def _mark(
        self,
        line: int,
        column: int = 0,
        begun: tuple[Piece, ...] = (),
        fence: OpenFence | None = None,
    ) -> None:
        self._marks.append(_Mark(line, column, len(self._shown), len(self.rows), begun, fence))


def _shows(row: ShownRow, start: Place, end: Place) -> bool:
    return any(
        piece.line >= 0
        and (piece.line, piece.start) < end
        and (piece.line, piece.start + len(piece.text)) > start
        for piece in row.pieces
    )
