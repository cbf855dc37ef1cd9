"""A picture of the coloured conversation: SVG in the light or dark scheme of the reader."""

from collections.abc import Iterator

from mlxspec_app.conversation.figures import reply_figures
from mlxspec_app.conversation.messages import Message, Reply
from mlxspec_app.export.picture import (
    HEAD,
    MARGIN,
    ROW,
    WIDTH,
    Row,
    document,
    legend_rows,
    line_rows,
    page_width,
    reply_rows,
    shapes,
    user_rows,
)
from mlxspec_app.export.recording import Recording


def render(recording: Recording, width: int = WIDTH) -> str:
    """Return the conversation as SVG, `width` cells wide, coloured by the kind of each token."""
    rows = [row for message in recording.messages for row in _message(message, width)]
    rows += legend_rows(width)
    high = 2 * MARGIN + HEAD + (len(rows) - 1) * ROW
    top = MARGIN + HEAD
    drawn = [shape for n, row in enumerate(rows) for shape in shapes(row, top + n * ROW)]
    return document(recording.title, (page_width(width), high), [], drawn)


def _message(message: Message, width: int) -> Iterator[Row]:
    if not isinstance(message, Reply):
        yield from [*user_rows(message, width), []]
        return
    figures = [part.text for part in reply_figures(message)]
    figures += [message.error] if message.error else []
    yield from [*reply_rows(message, width), []]
    yield from [*line_rows(" · ".join(figures), width, "muted"), []]
