"""Grow a draft tree best-first from next-token probabilities on the host.

A host drafter gives next-token probabilities through a `Cursor`, which represents the history and a
path below the root. The path probability is the product along the path, so a child is never more
probable than its parent. The most probable paths therefore form a tree, the best of its size: nodes
are in order of falling path probability, and the first n nodes are the best tree of n nodes
(OPT-Tree, Wang et al. 2024, https://arxiv.org/abs/2406.17276).
"""

from collections.abc import Iterator, Mapping
from heapq import heappop, heappush, nlargest
from itertools import count
from operator import itemgetter
from typing import Protocol

from mlxspec.drafts.draft import Draft
from mlxspec.params import FREE, DraftLimits

MAX_DEPTH = 32
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
