"""The text of one message for drawing: its spans, their wrapped rows, and the look of Markdown.

Spans are added and removed at the end only. The time for both is proportional to the changed spans,
not to the length of the message.
"""

from collections.abc import Sequence

from mlxspec_app.conversation.messages import Span
from mlxspec_app.text.live_markdown import PLAIN_LINE, LineLook, LiveMarkdown
from mlxspec_app.text.safe_text import safe_text
from mlxspec_app.text.tagged_lines import Line
from mlxspec_app.text.wrap import WrappedText


class MessageText:
    """The wrapped text of a message, without control characters.

    The tag of a run in `wrapped` is an index into `spans`.
    """

    def __init__(self, *, is_markdown: bool) -> None:
        self.spans: list[Span] = []
        self.wrapped = WrappedText()
        self._markdown = LiveMarkdown() if is_markdown else None

    @property
    def lines(self) -> list[Line]:
        return self.wrapped.lines

    @property
    def width(self) -> int:
        return self.wrapped.width

    def set_width(self, width: int) -> None:
        self.wrapped.set_width(width)

    def rows_of(self, span: int) -> range:
        return self.wrapped.rows_of(span)

    def row_at(self, line: int, character: int) -> int:
        """Return the row of a character, given by its index in a line of the text."""
        return self.wrapped.row_at(line, character)

    @property
    def num_rows(self) -> int:
        return len(self.wrapped.rows)

    def extend(self, spans: Sequence[Span]) -> int:
        """Add spans at the end and return the index of the first row that changed."""
        first, last_line = self.num_rows - 1, len(self.wrapped.lines) - 1
        for span in spans:
            self.spans.append(span)
            self.wrapped.append(safe_text(span.text), len(self.spans) - 1)
        return min(first, self._look_again(last_line, first))

    def cut_to(self, num_spans: int) -> int:
        """Keep the first `num_spans` spans; return the index of the first row that changed."""
        first = self.wrapped.cut(num_spans)
        del self.spans[num_spans:]
        if self._markdown is None:
            return first
        line = len(self.wrapped.lines) - 1
        self._markdown.cut(len(self.wrapped.lines))
        self._markdown.update(self.wrapped.lines)
        return min(first, self.wrapped.row_at(line, 0))

    def look_of(self, line: int) -> LineLook:
        if self._markdown is None or line >= len(self._markdown.lines):
            return PLAIN_LINE
        return self._markdown.lines[line]

    def _look_again(self, line: int, first: int) -> int:
        """Update the looks from a line on; return the first row that changed, else `first`."""
        changed = self._markdown.update(self.wrapped.lines) if self._markdown is not None else None
        return first if changed is None else self.wrapped.row_at(line, changed)
