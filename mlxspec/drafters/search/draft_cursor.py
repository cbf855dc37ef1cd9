"""A cursor over a draft of any drafter: the draft is copied to the host first."""

from collections.abc import Sequence
from dataclasses import dataclass

from mlxspec.device import backend
from mlxspec.drafts.draft import Draft

_UNSTATED_PROB = 0.5  # for nodes without an estimate


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
