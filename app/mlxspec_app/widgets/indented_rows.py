"""A draft tree in a narrow terminal: indented where it branches, the kept path on top.

Tokens that follow each other without a choice share a row, which goes on below, further in, where
it is too long:

    ● ✓produced .71
      ✓on .64
        →its .88
        ✗his .33 ·own .52
      ✗by .19
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from textual.content import Content

from mlxspec_app.rounds import Round
from mlxspec_app.widgets.tree_rows import Branch, branches, labelled, prune

_INDENT, _CONTINUED = 2, 4


@dataclass(frozen=True)
class _Line:
    """A row and how many drafted nodes it shows."""

    row: Content
    num_drafted: int


def indented_rows(round_: Round, num_rows: int, width: int) -> tuple[list[Content], int]:
    """Return the tree of a round in at most `num_rows` rows, and how many nodes had no room."""
    tree = branches(round_)
    lines = list(_lines(tree, width))
    while len(lines) > num_rows and _prune_one(tree):
        lines = list(_lines(tree, width))
    shown = lines[:num_rows]
    return [line.row for line in shown], len(round_.nodes) - sum(line.num_drafted for line in shown)


def _prune_one(tree: list[Branch]) -> bool:
    before = _num_leaves(tree)
    prune(tree, before - 1)
    return _num_leaves(tree) < before


def _num_leaves(tree: Sequence[Branch]) -> int:
    return sum(branch.num_leaves for branch in tree)


def _lines(tree: Sequence[Branch], width: int) -> Iterator[_Line]:
    yield from _run([], [Content.styled("●", "$foreground")], tree, 0, width)


def _run(
    done: list[Branch], cells: list[Content], children: Sequence[Branch], indent: int, width: int
) -> Iterator[_Line]:
    """Yield the rows of tokens without a choice between them, and of what branches off below."""
    run = [*done]
    while len(children) == 1:
        run.append(children[0])
        cells.append(labelled(children[0].token))
        children = children[0].children
    yield from _wrapped(run, cells, indent, width)
    for child in children:
        branch_cells = [labelled(child.token)]
        yield from _run([child], branch_cells, child.children, indent + _INDENT, width)


def _wrapped(
    run: Sequence[Branch], cells: Sequence[Content], indent: int, width: int
) -> Iterator[_Line]:
    drafted = [branch.token.mark in ("accepted", "rejected", "skipped") for branch in run]
    drafted = [False] * (len(cells) - len(run)) + drafted
    row, count = Content(" " * indent), 0
    is_fresh = True
    for cell, is_drafted in zip(cells, drafted, strict=True):
        if not is_fresh and row.cell_length + 1 + cell.cell_length > width:
            yield _Line(row, count)
            row, count, is_fresh = Content(" " * (indent + _CONTINUED)), 0, True
        row = row + cell if is_fresh else row + Content(" ") + cell
        count += is_drafted
        is_fresh = False
    yield _Line(row, count)
