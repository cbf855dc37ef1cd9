"""Draws one row of a message: runs of tokens with one style, and the drafted share of the row."""

from collections.abc import Sequence
from itertools import pairwise

from rich.cells import cell_len, split_graphemes
from rich.segment import Segment
from rich.style import Style
from textual.selection import Selection

from mlxspec_app.conversation.messages import Span
from mlxspec_app.text.tagged_lines import Line, Run
from mlxspec_app.text.wrap import Row, WrappedText

_NO_UNDERLINE = Style(underline=False)
_UNDERLINE = Style(underline=True)


def draw_run(
    text: str, run: Run, chosen: range, style: Style, selection_style: Style
) -> list[Segment]:
    """Return a run in pieces: its leading space, its word, and the selected part of each.

    `run` and `chosen` are characters of the logical line `text`. Selected characters also get
    `selection_style`. The space before a word is not underlined.
    """
    word = run.start
    if style.underline:
        word = run.end - len(text[run.start : run.end].lstrip(" "))
    inside = {edge for edge in (word, chosen.start, chosen.stop) if run.start < edge < run.end}
    pieces = []
    for start, end in pairwise(sorted({run.start, run.end} | inside)):
        piece_style = style if start >= word else style + _NO_UNDERLINE
        if start in chosen:
            piece_style += selection_style
        pieces.append(Segment(text[start:end], piece_style))
    return pieces


def opens_round(line: Line, run: Run, spans: Sequence[Span]) -> bool:
    """Return whether a run starts a round other than the first of its message.

    Of adjacent plain rounds, which have one token each, only the first counts. A row can break
    after the leading space of a token: the space is then invisible at the end of the previous row,
    and the word of the same token starts the round.
    """
    if run.tag == 0 or spans[run.tag].round == spans[run.tag - 1].round:
        return False
    if spans[run.tag].kind == spans[run.tag - 1].kind == "plain":
        return False
    start = run.start
    while start and line.text[start - 1] == " " and line.tag_at(start - 1) == run.tag:
        start -= 1
    return start == 0 or line.tag_at(start - 1) != run.tag


def with_tick(pieces: Sequence[Segment]) -> list[Segment]:
    """Return a run with its first visible character underlined, to mark the start of a round.

    An underlined space would look like a character of the text.
    """
    ticked: list[Segment] = []
    is_done = False
    for text, style, _ in pieces:
        start = len(text) - len(text.lstrip(" "))
        if is_done or start == len(text):
            ticked.append(Segment(text, style))
            continue
        end = start + split_graphemes(text[start:])[0][0][1]  # a grapheme cluster is not split
        line = style + _UNDERLINE if style is not None else _UNDERLINE
        parts = [(text[:start], style), (text[start:end], line), (text[end:], style)]
        ticked += [Segment(part, look) for part, look in parts if part]
        is_done = True
    return ticked


def accepted_share(runs: Sequence[Run], spans: Sequence[Span]) -> float:
    """Return the share of the characters of a row that came from accepted draft tokens."""
    total = sum(run.end - run.start for run in runs)
    accepted = sum(run.end - run.start for run in runs if spans[run.tag].kind == "accepted")
    return accepted / total if total else 0.0


def is_reasoning(runs: Sequence[Run], spans: Sequence[Span]) -> bool:
    """Return whether a row has text, but none of the answer."""
    return bool(runs) and all(spans[run.tag].channel != "answer" for run in runs)


def cells_to_draw(text: WrappedText, row: Row) -> int:
    """Return the number of visible cells of a row, without the spaces where it was wrapped."""
    characters = text.row_text(row)
    is_broken = row.end < len(text.lines[row.line].text)
    return min(text.width, cell_len(characters.rstrip(" ") if is_broken else characters))


def selected_in(row: Row, selection: Selection | None) -> range:
    """Return the selected characters of a row's line."""
    return chosen_in(row.line, row.end, selection)


def chosen_in(line: int, last: int, selection: Selection | None) -> range:
    """Return the selected characters of a line; `last` ends a selection that continues below."""
    span = selection.get_span(line) if selection is not None else None
    if span is None:
        return range(0)
    start, end = span
    return range(start, last if end == -1 else end)
