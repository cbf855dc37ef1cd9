"""A draft tree in a narrow terminal: indented where it branches, the accepted path on top.

Tokens on a path without branches share a row; a row that is too long continues below, indented:

    ● ✓produced .71
      ✓on .64
        →its .88
        ✗his .33 ·own .52
      ✗by .19
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from textual.content import Content

from mlxspec_app.conversation.rounds import Round
from mlxspec_app.widgets.draft.tree_rows import Branch, branches, labelled, prune

_INDENT, _CONTINUED = 2, 4


@dataclass(frozen=True)
class _Piece:
    """A token, or a row of tokens, and its number of draft nodes."""

    text: Content
    num_drafted: int


def indented_rows(round_: Round, num_rows: int, width: int) -> tuple[list[Content], int]:
    """Return the tree of a round in at most `num_rows` rows, and the number of nodes left out."""
    tree = branches(round_)
    root = _Piece(Content.styled("●", "$foreground"), 0)
    rows = list(_rows(root, tree, 0, width))
    while len(rows) > num_rows and _prune_one(tree):
        rows = list(_rows(root, tree, 0, width))
    shown = rows[:num_rows]
    return [row.text for row in shown], len(round_.nodes) - sum(row.num_drafted for row in shown)


def _prune_one(tree: list[Branch]) -> bool:
    before = _num_leaves(tree)
    prune(tree, before - 1)
    return _num_leaves(tree) < before


def _num_leaves(tree: Sequence[Branch]) -> int:
    return sum(branch.num_leaves for branch in tree)


def _rows(first: _Piece, children: Sequence[Branch], indent: int, width: int) -> Iterator[_Piece]:
    """Yield the rows of a token and of its descendants."""
    run = [first]
    while len(children) == 1:
        run.append(_piece(children[0]))
        children = children[0].children
    yield from _wrapped(run, indent, width)
    for child in children:
        yield from _rows(_piece(child), child.children, indent + _INDENT, width)


def _piece(branch: Branch) -> _Piece:
    is_drafted = branch.token.mark in ("accepted", "rejected", "skipped")
    return _Piece(labelled(branch.token), int(is_drafted))


def _wrapped(run: Sequence[_Piece], indent: int, width: int) -> Iterator[_Piece]:
    """Yield rows of at most `width` cells from the tokens of a path without branches."""
    row, count = Content(" " * indent) + run[0].text, run[0].num_drafted
    for piece in run[1:]:
        if row.cell_length + 1 + piece.text.cell_length > width:
            yield _Piece(row, count)
            row, count = Content(" " * (indent + _CONTINUED)) + piece.text, piece.num_drafted
        else:
            row, count = row + Content(" ") + piece.text, count + piece.num_drafted
    yield _Piece(row, count)
