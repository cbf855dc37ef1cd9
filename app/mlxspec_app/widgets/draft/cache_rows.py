"""The rows of the key-value cache during one round: staged, then committed or rolled back.

    staged   1,915 ▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓░░░░░░░  7 staged
    verdict        ▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓x▓xxx  3 kept, 4 rolled back
    commit         ▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓      1,934 committed

The last committed rows are drawn before the rows of the round; the number at the left counts the
committed rows that are not drawn. A commit closes the gaps between the rows of the accepted path.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from textual.content import Content

from mlxspec.trace.events import DraftVerified
from mlxspec_app.conversation.rounds import Round
from mlxspec_app.widgets.draft.marks import MUTED

_LABEL_CELLS = 9
_NOTE_CELLS = 24
_NOTES_FROM_WIDTH = 80
_COMMITTED = ("▓", "$spec-accepted")
_STAGED = ("░", "$foreground")
_CROSS = "\u2573"
_GONE = (_CROSS, MUTED)
LEGEND = f"▓ committed  ░ staged, speculative  {_CROSS} rolled back"


@dataclass(frozen=True)
class CacheRows:
    """The cache rows of a round: `committed` before it, `staged` by its forward, the root first."""

    committed: int
    staged: int
    to_commit: tuple[int, ...] | None

    @property
    def rolled_back(self) -> int:
        return self.staged - len(self.to_commit or ())


def cache_rows_of(round_: Round) -> CacheRows:
    """Return the cache rows of a finished round."""
    verdict = round_.verdict
    rows = {node.index: row for row, node in enumerate(round_.nodes, 1)}
    staged = len(rows) + 1
    to_commit = [0]
    if isinstance(verdict, DraftVerified):
        to_commit += [rows[index] for index in verdict.path if index in rows]
        # a reply may end inside the path
        to_commit = to_commit[: max(0, staged - verdict.rollback)]
    return CacheRows(max(0, verdict.context - len(to_commit)), staged, tuple(to_commit))


def row_lines(cache_rows: CacheRows, width: int) -> list[Content]:
    """Return a row of the screen for each step of the round."""
    has_notes = width >= _NOTES_FROM_WIDTH
    cells_left = max(1, width - _LABEL_CELLS - (_NOTE_CELLS if has_notes else 0))
    num_cells = max(1, cells_left - len(f"{cache_rows.committed:,} ") - cache_rows.staged)
    hidden = max(0, cache_rows.committed - num_cells)
    before = f"{hidden:,} " if hidden else ""
    cells_left = min(cells_left, len(before) + cache_rows.committed - hidden + cache_rows.staged)
    past = [_COMMITTED] * (cache_rows.committed - hidden)
    staged = [_STAGED] * cache_rows.staged
    steps = [("staged", before, [*past, *staged], f"{cache_rows.staged} staged")]
    blank = " " * len(before)
    if cache_rows.to_commit is not None:
        to_commit = [
            _COMMITTED if row in cache_rows.to_commit else _GONE for row in range(cache_rows.staged)
        ]
        note = f"{len(cache_rows.to_commit)} kept, {cache_rows.rolled_back} rolled back"
        steps.append(("verdict", blank, [*past, *to_commit], note))
        total = cache_rows.committed + len(cache_rows.to_commit)
        after = [*past, *[_COMMITTED] * len(cache_rows.to_commit)]
        steps.append(("commit", blank, after, f"{total:,} committed"))
    return [
        _row(label, start, cells, note if has_notes else "", cells_left)
        for label, start, cells, note in steps
    ]


def _row(label: str, start: str, cells: Sequence[tuple[str, str]], note: str, room: int) -> Content:
    runs = groupby(cells[: room + 1])  # one more, so that `truncate` shows an ellipsis
    parts = [(sign * len(list(run)), style) for (sign, style), run in runs]
    cache_rows = Content.assemble((start, MUTED), *parts).truncate(room, ellipsis=True)
    padded = cache_rows.pad_right(max(0, room - cache_rows.cell_length)) if note else cache_rows
    return Content.assemble(
        (label.ljust(_LABEL_CELLS), MUTED), padded, (f"  {note}" if note else "", "$foreground")
    )
