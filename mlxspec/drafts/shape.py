"""The shape of a sampled draft tree: how many children the nodes of each depth have.

Pruning a sampled tree by its drawn tokens would change the output distribution. So the host chooses
the shape first, and knows all parents without a synchronisation.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import mlx.core as mx

from mlxspec.drafts.tree import DraftTree

MAX_WIDTH = 3
"""Default number of children of the root: a fourth child was accepted in one of twenty rounds."""


@dataclass(frozen=True)
class TreeShape:
    """A tree in which all nodes of one depth have the same number of children.

    Nodes are numbered level by level, siblings next to each other. So nodes with children come
    first.
    """

    widths: tuple[int, ...]  # children of the root, of every node of depth 1, and so on

    def __post_init__(self) -> None:
        if not all(isinstance(width, int) and width > 0 for width in self.widths):
            raise ValueError(f"widths are whole numbers, 1 or more; got {self.widths}")

    @staticmethod
    def for_budget(budget: int, depth: int, width: int | None = None) -> "TreeShape":
        """Return a shape of at most `budget` nodes below the root, 1 or more.

        Only the root branches, into at most `width` branches of one length, at most `depth`.
        """
        depth = min(budget, depth)
        return TreeShape((min(budget // depth, width or MAX_WIDTH), *[1] * (depth - 1)))

    @property
    def is_chain(self) -> bool:
        """Whether no node has more than one child."""
        return all(width == 1 for width in self.widths)

    @cached_property
    def levels(self) -> Sequence[range]:
        """The nodes of each depth, from depth 0 on."""
        levels = [range(1)]
        for width in self.widths:
            start = levels[-1].stop
            levels.append(range(start, start + width * len(levels[-1])))
        return levels

    @cached_property
    def parents(self) -> Sequence[int]:
        """Parent of each node, -1 at the root."""
        parents = [-1]
        for level, width in zip(self.levels, self.widths, strict=False):
            parents += [node for node in level for _ in range(width)]
        return parents

    @cached_property
    def children(self) -> Sequence[Sequence[int]]:
        """Children of each node."""
        children: list[list[int]] = [[] for _ in self.parents]
        for node, parent in enumerate(self.parents[1:], 1):
            children[parent].append(node)
        return children

    def tree(self, tokens: mx.array) -> DraftTree:
        """Return the tree of the first n_nodes nodes, with (n_nodes,) int32 tokens, root first."""
        parents = list(self.parents[: tokens.shape[0]])
        return DraftTree(tokens, mx.array(parents, mx.int32), len(self.widths))
