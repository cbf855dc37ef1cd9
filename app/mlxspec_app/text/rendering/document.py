"""Rendered Markdown of a text that grows: complete parts stay, and the open end is parsed again.

All blocks but the last are complete, and so are all lines but the last of an open code block, and
the start of a very long paragraph. They are rendered once, so the cost of an update depends on the
open end of the text, not on its length. Marks record where parsing can start again; `cut` goes back
to one of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from mlxspec.trace.difference import common_length
from mlxspec_app.text.rendering.blocks import OpenFence, code_line, parse_region
from mlxspec_app.text.rendering.code import ROOT, Highlighter, State
from mlxspec_app.text.rendering.inline import closing_marks, inline_lines
from mlxspec_app.text.rendering.pieces import Piece, Shown, ShownLine, ShownRow, Tone
from mlxspec_app.text.tagged_lines import Line

_LONG_LINE = 400  # characters of a paragraph, before its start is taken as complete
_MANY_LINES = 24
_KEPT_OPEN = 160  # characters that stay open then
_LONGEST_OPEN = 2000  # characters after which an open mark is taken as text


@dataclass(frozen=True)
class _Fence:
    """An open code block, and the state of its highlighter."""

    fence: OpenFence
    highlighter: Highlighter
    state: State = ROOT


@dataclass(frozen=True)
class _Mark:
    """A position in the source before which all is complete.

    `num_shown` complete parts with `num_rows` rows precede it. `column` is above 0 only inside a
    long paragraph, and `begun` holds the pieces of that line before it. `fence` is the code block
    that is open there.
    """

    line: int = 0
    column: int = 0
    num_shown: int = 0
    num_rows: int = 0
    begun: tuple[Piece, ...] = ()
    fence: _Fence | None = None


class RenderedDocument:
    """The rows of a text, at least one, each at most `width` cells wide."""

    def __init__(self, width: int) -> None:
        self.width = width
        self.rows: list[ShownRow] = [ShownRow(0, ())]
        self._shown: list[Shown] = []
        self._marks = [_Mark()]
        self._num_complete = 0

    def update(self, lines: Sequence[Line], *, is_open: bool) -> int:
        """Render the text after it has grown or was cut; return the index of the first changed row.

        `lines` are all logical lines of the source; `is_open` says whether more text may follow.
        """
        start = self._num_complete
        old = self.rows[start:]
        del self.rows[start:]
        while (shown := self._advance(lines, is_open)) is None:
            pass
        self._num_complete = len(self.rows)
        self.rows += [row for part in shown for row in part.rows(self.width)]
        if not is_open:
            while len(self.rows) > max(1, start) and not self.rows[-1].pieces:
                self.rows.pop()
        self.rows = self.rows or [ShownRow(0, ())]
        return start + common_length(old, self.rows[start:])

    def cut(self, line: int, column: int) -> None:
        """Forget all that depends on the source from a position on; `update` must follow."""
        while len(self._marks) > 1 and (self._marks[-1].line, self._marks[-1].column) > (
            line, column
        ):  # fmt: skip
            self._marks.pop()
        mark = self._marks[-1]
        del self._shown[mark.num_shown :]
        self._num_complete = mark.num_rows

    def set_width(self, width: int) -> None:
        """Wrap the complete parts to another width; `update` must follow."""
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

    def _num_begun(self, mark: _Mark) -> int:
        return len(ShownLine(mark.line, mark.begun).rows(self.width)) - 1

    def _advance(self, lines: Sequence[Line], is_open: bool) -> list[Shown] | None:
        """Complete the parts that can be; return the open ones, or None if there are more."""
        mark = self._marks[-1]
        if mark.fence is not None:
            return self._advance_code(mark, mark.fence, lines, is_open)
        if mark.column:
            return self._advance_line(mark, lines, is_open)
        open_lines = [line.text for line in lines[mark.line :]]
        region = parse_region(open_lines, mark.line, is_open=is_open)
        last = len(lines) - 1
        if region.fence is not None and region.fence.line < last:
            fence = region.fence
            self._complete([part for part in region.shown if part.line <= fence.line])
            self._mark(fence.line + 1, fence=_Fence(fence, Highlighter(fence.language)))
            return None
        begin = max((line for line in region.starts if line < last), default=mark.line)
        if is_open and begin == mark.line and region.is_prose:
            part = self._complete_part(mark, lines)
            if part is None:
                return None
            begin = part
        if is_open and begin > mark.line:
            self._complete([part for part in region.shown if part.line < begin])
            self._mark(begin)
        return [part for part in region.shown if part.line >= begin or not is_open]

    def _complete_part(self, mark: _Mark, lines: Sequence[Line]) -> int | None:
        """Return the line from which a paragraph stays open; None after completing a part of it."""
        last = len(lines) - 1
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

    def _advance_line(
        self, mark: _Mark, lines: Sequence[Line], is_open: bool
    ) -> list[Shown] | None:
        """Continue a long paragraph whose start is complete."""
        if mark.line < len(lines) - 1:
            whole = ShownLine(mark.line, (*mark.begun, *self._rest(mark, lines, is_open=False)))
            del self.rows[len(self.rows) - self._num_begun(mark) :]
            self._complete([whole])
            self._mark(mark.line + 1)
            return None
        if is_open and self._complete_line(mark, lines[mark.line].text):
            return None
        tail = ShownLine(mark.line, mark.begun).rows(self.width)[-1].pieces
        return [ShownLine(mark.line, (*tail, *self._rest(mark, lines, is_open=is_open)))]

    def _rest(self, mark: _Mark, lines: Sequence[Line], *, is_open: bool) -> list[Piece]:
        return self._prose(mark, lines[mark.line].text[mark.column :], is_open=is_open)

    def _prose(self, mark: _Mark, text: str, *, is_open: bool) -> list[Piece]:
        place = [(mark.line, mark.column)]
        return inline_lines([text], place, is_open=is_open, tone=Tone.PLAIN)[0]

    def _advance_code(
        self, mark: _Mark, fence: _Fence, lines: Sequence[Line], is_open: bool
    ) -> list[Shown] | None:
        """Complete the lines of a code block except the last one, which may still grow."""
        last, state = len(lines) - 1, fence.state
        complete: list[Shown] = []
        for number in range(mark.line, len(lines)):
            text = lines[number].text
            if fence.fence.is_closed_by(text) and number < last:
                self._complete(complete)
                self._mark(number + 1)
                return None
            if number == last:
                break
            line, state = code_line(fence.fence, fence.highlighter, text, number, state)
            complete.append(line)
        if complete:
            self._complete(complete)
            self._mark(last, fence=replace(fence, state=state))
        text = lines[last].text
        if text.strip() and not text.strip().strip(fence.fence.marks[0]):
            return []  # the closing fence, or its start
        line, _ = code_line(fence.fence, fence.highlighter, text, last, state)
        return [line]

    def _complete(self, parts: Sequence[Shown]) -> None:
        self._shown += parts
        self.rows += [row for part in parts for row in part.rows(self.width)]

    def _mark(
        self,
        line: int,
        column: int = 0,
        begun: tuple[Piece, ...] = (),
        fence: _Fence | None = None,
    ) -> None:
        self._marks.append(_Mark(line, column, len(self._shown), len(self.rows), begun, fence))
