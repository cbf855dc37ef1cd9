r"""The draft tree: tokens and parents, and the depths and ancestors that follow from them.

Node 0 is the root, the last emitted token, which is not in the cache yet. Every other node
proposes a token after its parent. A parent has a smaller index than its children:

        0 "The"              tokens   The cat dog sat ran
       /       \             parents   -1   0   0   1   1
    1 "cat"  2 "dog"         depths     0   1   1   2   2
    /     \
 3 "sat" 4 "ran"

Tokens and parents may be lazy MLX arrays. All that is derived from them uses MLX operations, so
verification of a tree needs no host synchronisation (SpecInfer, Miao et al. 2023,
https://arxiv.org/abs/2305.09781).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import mlx.core as mx

from mlxspec.device.backend import values


@dataclass(frozen=True)
class DraftTree:
    """A tree of draft tokens below a root."""

    tokens: mx.array  # (n_nodes,) int32 token ids; the root first
    parents: mx.array  # (n_nodes,) int32 index of each node's parent, smaller than its own, or -1
    max_depth: int | None = None  # upper bound of the depths, on the host, if one is known

    @staticmethod
    def from_lists(tokens: Sequence[int], parents: Sequence[int]) -> "DraftTree":
        """Return the tree of tokens and parents on the host; raise ValueError if it is none."""
        if len(tokens) != len(parents) or not tokens:
            raise ValueError(
                f"a draft tree needs one parent per token and a root; got {len(tokens)} tokens "
                f"and {len(parents)} parents"
            )
        if parents[0] != -1:
            raise ValueError(f"the first node is the root and has parent -1, not {parents[0]}")
        depths = [0]
        for index, parent in enumerate(parents[1:], 1):
            if not 0 <= parent < index:
                raise ValueError(f"node {index} has parent {parent}; allowed are 0 to {index - 1}")
            depths.append(depths[parent] + 1)
        if len(set(zip(parents[1:], tokens[1:], strict=True))) < len(tokens) - 1:
            raise ValueError(
                "two siblings hold the same token; siblings of a draft tree must have different "
                "tokens: merge them into one node"
            )
        arrays = mx.array(list(tokens), mx.int32), mx.array(list(parents), mx.int32)
        return DraftTree(*arrays, max(depths))

    @staticmethod
    def chain(tokens: mx.array) -> "DraftTree":
        """Return the chain of (n_nodes,) int32 tokens, root first."""
        return DraftTree(tokens, mx.arange(-1, tokens.shape[0] - 1, dtype=mx.int32))

    def padded(self, rows: int) -> "DraftTree":
        """Return the tree with leaves added at its end, `rows` nodes in total.

        Each added leaf is a child of the root with the root's token. It only widens the forward: no
        verification rule may see it.
        """
        extra = rows - self.n_nodes
        if extra <= 0:
            return self
        tokens = mx.broadcast_to(self.tokens[:1], (extra,))
        parents = mx.zeros((extra,), mx.int32)
        return DraftTree(
            mx.concatenate([self.tokens, tokens]), mx.concatenate([self.parents, parents])
        )

    def lengthened(self, rows: int) -> "DraftTree":
        """Return the chain with the root's token added at its end, `rows` nodes in total."""
        extra = mx.broadcast_to(self.tokens[:1], (rows - self.n_nodes,))
        return DraftTree.chain(mx.concatenate([self.tokens, extra]))

    def bounded(self, vocab_size: int) -> "DraftTree":
        """Return the tree with tokens and parents limited to valid indices.

        A lazy tree cannot be checked before its use, and MLX does not check indices: it would read
        memory outside the array. A valid tree does not change.
        """
        if self.n_nodes == 1:
            return self
        return DraftTree(
            mx.clip(self.tokens, 0, vocab_size - 1),
            mx.minimum(self.parents, self.n_nodes - 1),
            self.max_depth,
        )

    def lists(self) -> tuple[list[int], list[int]]:
        """Return the tokens and the parents on the host; waits for them if they are lazy."""
        return values(self.tokens), self.parent_list()

    def parent_list(self) -> list[int]:
        """Return the parents on the host, without a wait for tokens that are drafted meanwhile."""
        parents: list[int] = values(self.parents)
        return parents

    @property
    def n_nodes(self) -> int:
        """Number of nodes, root included."""
        return self.tokens.shape[0]

    @property
    def num_levels(self) -> int:
        """Number of depths that nodes may have, including depth 0 of the root."""
        most = self.n_nodes - 1
        return 1 + (most if self.max_depth is None else min(self.max_depth, most))

    @cached_property
    def ancestors(self) -> mx.array:
        """(n_nodes, n_nodes) bool: True at [i, j] if j is i or an ancestor of i.

        Pointer doubling: after k steps a row has the 2**k nearest nodes on the way to the root.
        """
        jump = mx.maximum(self.parents, 0)  # the root is its own parent
        seen = mx.eye(self.n_nodes, dtype=mx.bool_)
        reach = 1
        while reach < self.n_nodes:
            seen = seen | seen[jump]
            jump = jump[jump]
            reach *= 2
        return seen

    @cached_property
    def depths(self) -> mx.array:
        """(n_nodes,) int32 number of edges between each node and the root."""
        return self.ancestors.sum(axis=1).astype(mx.int32) - 1  # a row includes the node itself


def check_branch(path: Sequence[int], parents: Sequence[int]) -> None:
    """Raise ValueError unless `path` goes from the root down, each node the parent of the next."""
    expected = -1
    for index in path:
        if not 0 <= index < len(parents) or parents[index] != expected:
            raise ValueError(
                f"the path {list(path)} is not a branch from the root: node {index} is not a "
                f"child of node {expected}"
            )
        expected = index
