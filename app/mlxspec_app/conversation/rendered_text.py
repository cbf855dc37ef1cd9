"""The text of one message for drawing as rendered Markdown.

`MessageText` holds the exact characters instead. As there, spans are added and removed at the end
only; the time for both is proportional to the open end of the text.
"""

from bisect import bisect_left
from collections.abc import Sequence

from mlxspec_app.conversation.messages import Span
from mlxspec_app.text.rendering.document import RenderedDocument
from mlxspec_app.text.rendering.pieces import ShownRow
from mlxspec_app.text.safe_text import safe_text
from mlxspec_app.text.tagged_lines import Line, Place, TaggedLines


class RenderedText:
    """The rendered text of a message; the tag of a run in `lines` is an index into `spans`."""

    def __init__(self, *, is_open: bool = False) -> None:
        """Start empty; `is_open` says that more text will follow."""
        self.spans: list[Span] = []
        self._source = TaggedLines()
        self._document = RenderedDocument(80)
        self._is_open = is_open

    @property
    def lines(self) -> list[Line]:
        """The source in logical lines, without control characters."""
        return self._source.lines

    @property
    def rows(self) -> list[ShownRow]:
        return self._document.rows

    @property
    def num_rows(self) -> int:
        return len(self._document.rows)

    @property
    def width(self) -> int:
        return self._document.width

    def set_width(self, width: int) -> None:
        self._document.set_width(width)
        self._update()

    def set_open(self, is_open: bool) -> int:
        """Set whether more text will follow; return the index of the first row that changed."""
        if is_open == self._is_open:
            return self.num_rows
        self._is_open = is_open
        return self._update()

    def extend(self, spans: Sequence[Span]) -> int:
        """Add spans at the end and return the index of the first row that changed."""
        for span in spans:
            self.spans.append(span)
            self._source.append(safe_text(span.text), len(self.spans) - 1)
        return self._update()

    def cut_to(self, num_spans: int) -> int:
        """Keep the first `num_spans` spans; return the index of the first row that changed."""
        del self.spans[num_spans:]
        self._document.cut(*self._source.cut(num_spans))
        return self._update()

    def rows_of(self, span: int) -> range:
        """Return the rows that show a span, else the row in which it would be."""
        start, end = self._source.start_of(span), self._source.start_of(span + 1)
        first = bisect_left(self.rows, start.line, key=lambda row: row.line)
        last = bisect_left(self.rows, end.line + 1, key=lambda row: row.line)
        found = [i for i in range(first, last) if _shows(self.rows[i], start, end)]
        near = min(first, self.num_rows - 1)
        return range(found[0], found[-1] + 1) if found else range(near, near + 1)

    def row_at(self, line: int, character: int) -> int:
        """Return the row that shows a character of the source, else the last one before it."""
        here, after = Place(line, character), Place(line, character + 1)
        first = max(0, bisect_left(self.rows, line, key=lambda row: row.line))
        for number in range(first, self.num_rows):
            if self.rows[number].line > line:
                break
            if _shows(self.rows[number], here, after):
                return number
        return max(0, min(first, self.num_rows - 1))

    def _update(self) -> int:
        return self._document.update(self._source.lines, is_open=self._is_open)


def _shows(row: ShownRow, start: Place, end: Place) -> bool:
    return any(
        piece.line >= 0
        and (piece.line, piece.start) < end
        and (piece.line, piece.start + len(piece.text)) > start
        for piece in row.pieces
    )
