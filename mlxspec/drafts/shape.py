"""The shape of a draft tree that is known before its tokens are: a width for every depth.

A tree that is drawn at random must not be pruned by what was drawn. So its shape is settled first,
on the host, which can then say who hangs below whom without a look at the device.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import mlx.core as mx

from mlxspec.drafts.tree import DraftTree

MAX_WIDTH = 3
"""Children of the root where nobody asks for more: a fourth was measured to be the right one once
in twenty rounds."""


@dataclass(frozen=True)
class Branching:
    """A tree in which all nodes of a depth have equally many children.

    Nodes are numbered level by level, siblings side by side; those with children come first.

    Attributes:
        widths: Children of the root, of every node of depth 1, and so on.
    """

    widths: tuple[int, ...]

    def __post_init__(self) -> None:
        if not all(isinstance(width, int) and width > 0 for width in self.widths):
            raise ValueError(f"widths are whole numbers, 1 or more; got {self.widths}")

    @staticmethod
    def for_budget(budget: int, depth: int, width: int | None = None) -> "Branching":
        """Return a shape of at most `budget` nodes, the root not counted, all at least 1.

        The tree branches at the root alone, into at most `width`, and all its branches are of one
        length: up to `depth`.
        """
        depth = min(budget, depth)
        return Branching((min(budget // depth, width or MAX_WIDTH), *[1] * (depth - 1)))

    @property
    def is_chain(self) -> bool:
        """Whether no node has more than one child."""
        return all(width == 1 for width in self.widths)

    @cached_property
    def levels(self) -> Sequence[range]:
        """The nodes of each depth, the root's first."""
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
        """Return the tree of its first levels that (n_nodes,) int32 tokens fill, root first."""
        parents = list(self.parents[: tokens.shape[0]])
        return DraftTree(tokens, mx.array(parents, mx.int32), len(self.widths))
