"""The tree mask among the staged rows of a round, as a matrix of half blocks.

The forward that verifies a draft tree has all nodes as rows at once, so a mask limits attention:
a node attends to the cached tokens, itself and its ancestors up to the root. Two nodes share a row
of the screen, the upper and the lower half of its cells; each column is one node, the root first.

    █▄        0 ● root        1 ✓produced
    █▄▀▄      2 ✗written      3 ✓on
"""

from collections.abc import Sequence
from itertools import groupby

from textual.content import Content

from mlxspec.trace.events import DraftNode
from mlxspec_app.conversation.rounds import Mark, MarkedToken, Round, node_marks
from mlxspec_app.text.safe_text import token_label
from mlxspec_app.widgets.draft.marks import MUTED, marked

_HALVES = {(False, False): " ", (True, False): "▀", (False, True): "▄", (True, True): "█"}
_LABEL_CELLS = 20
_LABELS_FROM_ROOM = 2 * _LABEL_CELLS
_COLUMN_STYLES: dict[Mark, str] = {"accepted": "$spec-accepted"}
_ROOT = Content.styled("● root", "$foreground")


def ancestor_mask(nodes: Sequence[DraftNode]) -> list[list[bool]]:
    """Return a square mask: [i][j] is whether row i of a forward sees row j; row 0 is the root."""
    rows = {0: 0} | {node.index: row for row, node in enumerate(nodes, 1)}
    seen = [{0}]
    for row, node in enumerate(nodes, 1):
        seen.append(seen[rows[node.parent]] | {row})
    return [[column in visible for column in range(len(seen))] for visible in seen]


def half_blocks(mask: list[list[bool]]) -> list[str]:
    """Return a matrix as strings, each of which draws two of its rows."""
    blank = [False] * len(mask)
    pairs = zip(mask[::2], [*mask[1::2], blank], strict=False)
    return ["".join(_HALVES[pair] for pair in zip(*rows, strict=True)) for rows in pairs]


def mask_rows(round_: Round, width: int, num_rows: int) -> tuple[list[Content], int]:
    """Return the mask labelled with its tokens, and the number of nodes left out."""
    shown = min(len(round_.nodes) + 1, width, 2 * num_rows)
    nodes = round_.nodes[: max(0, shown - 1)]
    verdicts = node_marks(round_)
    marks = [verdicts[node.index] for node in nodes]
    styles = ["$foreground", *(_COLUMN_STYLES.get(mark, MUTED) for mark in marks)]
    labels = _labels(nodes, marks) if width - shown >= _LABELS_FROM_ROOM else []
    rows = []
    for number, line in enumerate(half_blocks(ancestor_mask(nodes))):
        cells = groupby(zip(line, styles, strict=True), lambda cell: cell[1])
        row = Content.assemble(*(("".join(c for c, _ in run), style) for style, run in cells))
        for label in labels[2 * number : 2 * number + 2]:
            row += Content("  ") + label.pad_right(max(0, _LABEL_CELLS - label.cell_length))
        rows.append(row)
    return rows, len(round_.nodes) + 1 - shown


def _labels(nodes: Sequence[DraftNode], marks: Sequence[Mark]) -> list[Content]:
    pairs = zip(nodes, marks, strict=True)
    names = [_ROOT, *(marked(MarkedToken(token_label(node.text), mark)) for node, mark in pairs)]
    return [
        Content.styled(f"{number:>2} ", MUTED) + name.truncate(_LABEL_CELLS - 3, ellipsis=True)
        for number, name in enumerate(names)
    ]
