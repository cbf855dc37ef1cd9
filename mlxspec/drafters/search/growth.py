"""Grow a draft tree best-first from next-token probabilities on the host.

A host drafter gives next-token probabilities through a `Cursor`, which represents the history and a
path below the root. The path probability is the product along the path, so a child is never more
probable than its parent. The most probable paths therefore form a tree, the best of its size: nodes
are in order of falling path probability, and the first n nodes are the best tree of n nodes
(OPT-Tree, Wang et al. 2024, https://arxiv.org/abs/2406.17276).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from heapq import heappop, heappush, nlargest
from itertools import count
from operator import itemgetter
from typing import Any, Protocol

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


class Estimator(Protocol):
    """Next-token probabilities of one drafter, by a state that stands for a text."""

    name: str

    def next_probs(self, state: Any) -> Mapping[int, float]:
        """Return the tokens that may follow, with their probabilities."""

    def after(self, state: Any, token: int) -> Any:
        """Return the state after one more token, which may be any token."""


@dataclass(slots=True)
class StateCursor:
    """A node, given by the state of its text."""

    estimator: Estimator
    state: Any

    def next_probs(self) -> Mapping[int, float]:
        return self.estimator.next_probs(self.state)

    def source_of(self, token: int) -> str:
        return self.estimator.name

    def child(self, token: int) -> "StateCursor":
        return StateCursor(self.estimator, self.estimator.after(self.state, token))


def grow(root: int, cursor: Cursor, budget: int, limits: DraftLimits = FREE) -> Draft:
    """Return the tree of the `budget` most probable paths below `root`, which does not count."""
    tokens, parents, cursors, depths = [root], [-1], [cursor], [0]
    sources: list[str] = []
    probs: list[float] = []
    path_probs = [1.0]  # the root's first
    heap: list[tuple[float, int, int, int, float]] = []  # the children to add next
    order = count()  # ties go to the child that was found first
    for node in range(budget):  # the last node needs no children
        if depths[node] < (limits.depth or MAX_DEPTH):
            following = cursors[node].next_probs()
            if limits.branching is not None:
                best = nlargest(limits.branching, following.items(), key=itemgetter(1))
                following = dict(best)
            for token, prob in following.items():
                prob = min(prob, 1.0)  # above 1, a child would be more probable than its parent
                reached = path_probs[node] * prob
                if reached >= MIN_PATH_PROB:
                    heappush(heap, (-reached, next(order), node, token, prob))
        if not heap:
            break
        negative, _, parent, token, prob = heappop(heap)
        tokens.append(token)
        parents.append(parent)
        sources.append(cursors[parent].source_of(token))
        probs.append(prob)
        cursors.append(cursors[parent].child(token))
        path_probs.append(-negative)
        depths.append(depths[parent] + 1)
    return Draft.from_lists(tokens, parents, sources, probs, path_probs[1:])


@dataclass
class _Copied:
    """The estimates of a draft that was copied to the host; a state is a node, or None outside."""

    name: str
    children: list[dict[int, float]]  # per node, the probability of each child by its token
    nodes: list[dict[int, int]]  # per node, the index of each child by its token

    def next_probs(self, state: int | None) -> Mapping[int, float]:
        return {} if state is None else self.children[state]

    def after(self, state: int | None, token: int) -> int | None:
        return None if state is None else self.nodes[state].get(token)


def read_draft(name: str, draft: Draft) -> StateCursor:
    """Copy a draft to the host and return the cursor at its root."""
    tree, stated = draft.tree, draft.node_probs
    backend.sync(tree.tokens, tree.parents, *([] if stated is None else [stated]))
    tokens, parents = tree.lists()
    probs = [_UNSTATED_PROB] * len(tokens[1:]) if stated is None else backend.values(stated)
    copied = _Copied(name, [{} for _ in tokens], [{} for _ in tokens])
    edges = zip(parents[1:], tokens[1:], probs, strict=True)
    for node, (parent, token, prob) in enumerate(edges, 1):
        copied.children[parent][token] = prob
        copied.nodes[parent][token] = node
    return StateCursor(copied, 0)
