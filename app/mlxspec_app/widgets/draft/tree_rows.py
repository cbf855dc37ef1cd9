"""A draft tree in rows: the accepted path on top, and the bonus token at its end.

A wide terminal has a column for each depth, and a row for each leaf:

    ●━━ ✓produced .71 ━┳━ ✓on .64 ━┳━ →its .88
                       │           └─ ✗his .33 ─── ·own .52
                       └─ ✗by .19

A narrow one indents where the tree branches, and a row that is too long continues below:

    ● ✓produced .71
      ✓on .64
        →its .88
        ✗his .33 ·own .52
      ✗by .19

If there are too few rows, the least probable branches are left out; the accepted path always stays.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest

from textual.content import Content

from mlxspec_app.conversation.figures import prob
from mlxspec_app.conversation.rounds import (
    MarkedToken,
    Round,
    children_by_parent,
    mark_emitted,
    node_marks,
)
from mlxspec_app.text.safe_text import token_label
from mlxspec_app.widgets.draft.marks import MUTED, marked

_MOST_LABEL_CELLS = 14
_MOST_NODES, _MOST_DEPTH = 256, 32  # no screen has room for more
_LINES = {
    # (kept, first child, more siblings below): the line that leads to a node
    (True, True, True): "━┳━",
    (True, True, False): "━━━",
    (True, False, True): " ┣━",
    (True, False, False): " ┗━",
    (False, True, True): "─┬─",
    (False, True, False): "───",
    (False, False, True): " ├─",
    (False, False, False): " └─",
}
_INDENT, _CONTINUED = 2, 4


@dataclass(eq=False)
class Branch:
    """A node to draw, with its children, the accepted one first."""

    token: MarkedToken
    weight: float = 1.0  # the path probability
    children: list["Branch"] = field(default_factory=list)

    @property
    def num_leaves(self) -> int:
        return sum(child.num_leaves for child in self.children) or 1

    @property
    def is_kept(self) -> bool:
        return self.token.mark not in ("rejected", "skipped")

    @property
    def is_drafted(self) -> bool:
        return self.token.mark in ("accepted", "rejected", "skipped")

    @property
    def num_drafted(self) -> int:
        return self.is_drafted + sum(child.num_drafted for child in self.children)


def branches(round_: Round) -> list[Branch]:
    """Return the tree of a round: the branches below the root."""
    verdict = round_.verdict
    path = getattr(verdict, "path", ())
    below = children_by_parent(round_.nodes[:_MOST_NODES])
    probs = dict(zip(path, (token.target_prob for token in verdict.emit), strict=False))
    marks = node_marks(round_)

    def grow(parent: int, weight: float, depth: int) -> list[Branch]:
        grown = []
        for node in below.get(parent, []) if depth < _MOST_DEPTH else []:
            q = 0.5 if node.prob is None else node.prob  # None: the drafter gives no probability
            label, p = token_label(node.text), probs.get(node.index)
            token = MarkedToken(label, marks[node.index], p, node.prob)
            grown.append(Branch(token, weight * q, grow(node.index, weight * q, depth + 1)))
        if parent == (path[-1] if path else 0):
            own = map(mark_emitted, verdict.emit[len(path) :])
            grown = [Branch(token) for token in own] + grown
        # A stable sort: the accepted child first, the others in the order of the draft.
        return sorted(grown, key=lambda branch: not branch.is_kept)

    return grow(0, 1.0, 0)


def prune(tree: list[Branch], num_rows: int) -> bool:
    """Remove the least probable branches until `num_rows` suffice; return whether that is so."""
    while sum(branch.num_leaves for branch in tree) > num_rows:
        twigs = _twigs(tree)
        if not twigs:
            return False
        siblings, twig = min(twigs, key=lambda found: found[1].weight)
        siblings.remove(twig)
    return True


def tree_rows(round_: Round, num_rows: int) -> tuple[list[Content], int]:
    """Return the tree of a round in at most `num_rows` rows, and the number of nodes left out."""
    tree = branches(round_)
    prune(tree, num_rows)
    grid: list[list[Content]] = []
    _fill(grid, tree, 0)
    columns = zip_longest(*grid, fillvalue=Content(""))
    widths = [max(cell.cell_length for cell in column) for column in columns]
    rows: list[Content] = []
    for cells in grid:
        start = Content.styled(" " if rows else "●", "$foreground")
        padded = [c.pad_right(w - c.cell_length) for c, w in zip(cells, widths, strict=False)]
        rows.append(Content("").join([start, *padded]))
    return rows, len(round_.nodes) - sum(branch.num_drafted for branch in tree)


def _twigs(siblings: list[Branch]) -> list[tuple[list[Branch], Branch]]:
    """Return the leaves whose removal saves a row, each with the list that contains it."""
    found = []
    for branch in siblings:
        if not branch.is_kept and len(siblings) > 1 and branch.num_leaves == 1:
            found.append((siblings, branch))
        else:
            found += _twigs(branch.children)
    return found


def _fill(grid: list[list[Content]], siblings: list[Branch], depth: int) -> None:
    """Add the rows of siblings at a depth; the first of them continues the last row."""
    for number, branch in enumerate(siblings):
        more = number + 1 < len(siblings)
        if number or not grid:
            grid.append([Content("")] * depth)
        top = len(grid)
        grid[-1].append(_cell(branch, first=number == 0, more=more))
        _fill(grid, branch.children, depth + 1)
        for row in grid[top:] if more else []:
            row[depth] = Content.styled(" │ ", MUTED)


def _cell(branch: Branch, *, first: bool, more: bool) -> Content:
    line = (_LINES[branch.is_kept, first, more], "$foreground" if branch.is_kept else MUTED)
    return Content.assemble(line, " ", labelled(branch.token), " ")


def labelled(token: MarkedToken) -> Content:
    """Return a token with its verdict and its probability."""
    shown = marked(token).truncate(_MOST_LABEL_CELLS, ellipsis=True)
    p = token.draft_prob if token.draft_prob is not None else token.target_prob
    return shown + Content.styled(f" {prob(p)}" if p is not None else "", MUTED)


@dataclass(frozen=True)
class _Row:
    """A token, or a row of tokens, and its number of draft nodes."""

    text: Content
    num_drafted: int = 0

    @classmethod
    def of(cls, branch: Branch) -> "_Row":
        return cls(labelled(branch.token), int(branch.is_drafted))


def indented_rows(round_: Round, num_rows: int, width: int) -> tuple[list[Content], int]:
    """Return the tree of a round in at most `num_rows` rows, and the number of nodes left out."""
    tree = branches(round_)
    root = _Row(Content.styled("●", "$foreground"))
    rows = list(_rows(root, tree, 0, width))
    while len(rows) > num_rows and prune(tree, sum(branch.num_leaves for branch in tree) - 1):
        rows = list(_rows(root, tree, 0, width))
    shown = rows[:num_rows]
    return [row.text for row in shown], len(round_.nodes) - sum(row.num_drafted for row in shown)


def _rows(first: _Row, children: Sequence[Branch], indent: int, width: int) -> Iterator[_Row]:
    """Yield the rows of a token and of its descendants; a path without branches is wrapped."""
    text, count = Content(" " * indent) + first.text, first.num_drafted
    while len(children) == 1:
        token = _Row.of(children[0])
        if text.cell_length + 1 + token.text.cell_length > width:
            yield _Row(text, count)
            text, count = Content(" " * (indent + _CONTINUED)) + token.text, token.num_drafted
        else:
            text, count = text + Content(" ") + token.text, count + token.num_drafted
        children = children[0].children
    yield _Row(text, count)
    for child in children:
        yield from _rows(_Row.of(child), child.children, indent + _INDENT, width)
