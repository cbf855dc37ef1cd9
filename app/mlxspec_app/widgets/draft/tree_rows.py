"""A draft tree in rows: a column for each depth, a row for each leaf, the accepted path on top.

The bonus token is at the end of the accepted path. If a tree has more leaves than rows, its least
probable branches are left out; the accepted path always stays.

    ●━━ ✓produced .71 ━┳━ ✓on .64 ━┳━ →its .88
                       │           └─ ✗his .33 ─── ·own .52
                       └─ ✗by .19
"""

from dataclasses import dataclass, field

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
from mlxspec_app.widgets.draft.lane_rows import MUTED, marked

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


@dataclass(eq=False)
class Branch:
    """A node to draw, with its children, the accepted one first.

    `weight` is the path probability: the branches of the smallest weight are left out first.
    """

    token: MarkedToken
    weight: float = 1.0
    children: list["Branch"] = field(default_factory=list)

    @property
    def num_leaves(self) -> int:
        return sum(child.num_leaves for child in self.children) or 1

    @property
    def num_drafted(self) -> int:
        own = self.token.mark in ("accepted", "rejected", "skipped")
        return own + sum(child.num_drafted for child in self.children)


def branches(round_: Round) -> list[Branch]:
    """Return the tree of a round: the branches below the root."""
    verdict = round_.verdict
    path = getattr(verdict, "path", ())
    accepted = [token for token in verdict.emit if token.kind == "accepted"]
    below = children_by_parent(round_.nodes[:_MOST_NODES])
    probs = dict(zip(path, (token.target_prob for token in accepted), strict=False))
    marks = node_marks(round_)

    def grow(parent: int, weight: float, depth: int) -> list[Branch]:
        grown = []
        for node in below.get(parent, []) if depth < _MOST_DEPTH else []:
            q = 0.5 if node.prob is None else node.prob  # None: the drafter gives no probability
            label, p = token_label(node.text), probs.get(node.index)
            token = MarkedToken(label, marks[node.index], p, node.prob)
            grown.append(Branch(token, weight * q, grow(node.index, weight * q, depth + 1)))
        if parent == (path[-1] if path else 0):
            own = [mark_emitted(token) for token in verdict.emit if token.kind != "accepted"]
            grown = [Branch(token) for token in own] + grown
        # A stable sort: the accepted child first, the others in the order of the draft.
        return sorted(grown, key=lambda branch: branch.token.mark in ("rejected", "skipped"))

    return grow(0, 1.0, 0)


def prune(tree: list[Branch], num_rows: int) -> None:
    """Remove the least probable branches from `tree` until it fits into `num_rows` rows."""
    while sum(branch.num_leaves for branch in tree) > num_rows:
        twigs = _twigs(tree)
        if not twigs:
            return
        siblings, twig = min(twigs, key=lambda found: found[1].weight)
        siblings.remove(twig)


def tree_rows(round_: Round, num_rows: int) -> tuple[list[Content], int]:
    """Return the tree of a round in at most `num_rows` rows, and the number of nodes left out."""
    tree = branches(round_)
    prune(tree, num_rows)
    shown = sum(branch.num_drafted for branch in tree)
    gone = len(round_.nodes) - shown
    grid: list[list[Content]] = []
    _fill(grid, tree, 0)
    widths = [max(cell.cell_length for cell in column) for column in zip(*_even(grid), strict=True)]
    rows = []
    for number, cells in enumerate(_even(grid)):
        start = Content.styled("●" if number == 0 else " ", "$foreground")
        padded = [c.pad_right(w - c.cell_length) for c, w in zip(cells, widths, strict=True)]
        rows.append(Content("").join([start, *padded]))
    return rows, gone


def _twigs(siblings: list[Branch]) -> list[tuple[list[Branch], Branch]]:
    """Return the leaves whose removal saves a row, each with the list that contains it."""
    found = []
    for branch in siblings:
        is_accepted = branch.token.mark not in ("rejected", "skipped")
        if not is_accepted and len(siblings) > 1 and branch.num_leaves == 1:
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
    is_accepted = branch.token.mark not in ("rejected", "skipped")
    style = "$foreground" if is_accepted else MUTED
    return Content.assemble(
        (_LINES[is_accepted, first, more], style), " ", labelled(branch.token), " "
    )


def labelled(token: MarkedToken) -> Content:
    """Return a token with its verdict and its probability."""
    shown = marked(token).truncate(_MOST_LABEL_CELLS, ellipsis=True)
    p = token.draft_prob if token.draft_prob is not None else token.target_prob
    return shown + Content.styled(f" {prob(p)}" if p is not None else "", MUTED)


def _even(grid: list[list[Content]]) -> list[list[Content]]:
    """Return the grid with rows of equal length."""
    longest = max((len(row) for row in grid), default=0)
    return [row + [Content("")] * (longest - len(row)) for row in grid]
