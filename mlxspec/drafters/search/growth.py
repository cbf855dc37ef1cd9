"""Grow a draft tree best-first from next-token probabilities on the host.

A host drafter gives next-token probabilities through a `Cursor`, which represents the history and a
path below the root. The path probability is the product along the path, so a child is never more
probable than its parent. The most probable paths therefore form a tree, the best of its size: nodes
are in order of falling path probability, and the first n nodes are the best tree of n nodes
(OPT-Tree, Wang et al. 2024, https://arxiv.org/abs/2406.17276).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush, nlargest
from itertools import count
from operator import itemgetter
from typing import Protocol

from mlxspec.device import backend
from mlxspec.drafts.draft import Draft
from mlxspec.params import FREE, DraftLimits

MAX_DEPTH = 32
_UNSTATED_PROB = 0.5  # for nodes without an estimate
MIN_PATH_PROB = 1e-3
"""Paths below this are not proposed: each costs a row and is almost never accepted."""


class Cursor(Protocol):
    """A drafter's view of one node: the history and the path to the node."""

    def next_probs(self) -> Mapping[int, float]:
        """Return the tokens that may follow, with their probabilities."""

    def source_of(self, token: int) -> str:
        """Return the name of the drafter that proposes `token`, one of `next_probs`."""

    def child(self, token: int) -> "Cursor":
        """Return the cursor after `token`, which may be any token."""


class _Growth:
    """A tree while it grows: its nodes, and a heap of the children to add next."""

    def __init__(self, root: int, cursor: Cursor, limits: DraftLimits) -> None:
        self._branching, self._depth = limits.branching, limits.depth or MAX_DEPTH
        self.tokens, self.parents = [root], [-1]
        self.sources: list[str] = []
        self.probs: list[float] = []
        self._cursors = [cursor]
        self.path_probs = [1.0]  # the root's first
        self._depths = [0]
        self._heap: list[tuple[float, int, int, int, float]] = []
        self._order: Iterator[int] = count()  # ties go to the child that was found first

    def expand(self, parent: int) -> None:
        if self._depths[parent] == self._depth:
            return
        reached = self.path_probs[parent]
        probs = self._cursors[parent].next_probs()
        if self._branching is not None:
            probs = dict(nlargest(self._branching, probs.items(), key=itemgetter(1)))
        for token, prob in probs.items():
            prob = min(prob, 1.0)  # above 1, a child would be more probable than its parent
            if reached * prob >= MIN_PATH_PROB:
                entry = (-reached * prob, next(self._order), parent, token, prob)
                heappush(self._heap, entry)

    def take(self) -> bool:
        """Add the most probable child of the heap to the tree; return False if it is empty."""
        if not self._heap:
            return False
        negative, _, parent, token, prob = heappop(self._heap)
        self.tokens.append(token)
        self.parents.append(parent)
        self.sources.append(self._cursors[parent].source_of(token))
        self.probs.append(prob)
        self._cursors.append(self._cursors[parent].child(token))
        self.path_probs.append(-negative)
        self._depths.append(self._depths[parent] + 1)
        return True


def grow(root: int, cursor: Cursor, budget: int, limits: DraftLimits = FREE) -> Draft:
    """Return the tree of the `budget` most probable paths below `root`, which does not count."""
    growth = _Growth(root, cursor, limits)
    node = 0
    while node < budget:  # the last node needs no children
        growth.expand(node)
        if not growth.take():
            break
        node += 1
    return Draft.from_lists(
        growth.tokens, growth.parents, growth.sources, growth.probs, growth.path_probs[1:]
    )


@dataclass(frozen=True)
class DraftCursor:
    """A node of a draft that was copied to the host.

    Attributes:
        children: Per node, the index of each child by its token.
        probs: Per node, the drafter's estimate that it follows its parent.
        node: Index of the node; None outside the tree.
    """

    name: str
    children: Sequence[dict[int, int]]
    probs: Sequence[float]
    node: int | None = 0

    def next_probs(self) -> dict[int, float]:
        if self.node is None:
            return {}
        return {token: self.probs[child] for token, child in self.children[self.node].items()}

    def source_of(self, token: int) -> str:
        return self.name

    def child(self, token: int) -> "DraftCursor":
        node = None if self.node is None else self.children[self.node].get(token)
        return DraftCursor(self.name, self.children, self.probs, node)


def read_draft(name: str, draft: Draft) -> DraftCursor:
    """Copy a draft to the host and return the cursor at its root."""
    tree, stated = draft.tree, draft.node_probs
    backend.sync(tree.tokens, tree.parents, *([] if stated is None else [stated]))
    n_nodes = tree.n_nodes
    probs = [_UNSTATED_PROB] * (n_nodes - 1) if stated is None else backend.values(stated)
    children: list[dict[int, int]] = [{} for _ in range(n_nodes)]
    edges = zip(backend.values(tree.parents), backend.values(tree.tokens), strict=True)
    for node, (parent, token) in enumerate(edges):
        if node:
            children[parent][token] = node
    return DraftCursor(name, children, [1.0, *probs])
