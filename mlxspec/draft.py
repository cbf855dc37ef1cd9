"""A draft as it is handed over, and the verdict on it as it comes back."""

from collections.abc import Sequence
from dataclasses import dataclass

import mlx.core as mx

from mlxspec.backend import values
from mlxspec.branching import Branching
from mlxspec.tree import DraftTree


@dataclass(frozen=True)
class Draft:
    """A draft tree and how it came about.

    Attributes:
        tree: The root and the proposed nodes; tokens and parents may be lazy.
        sources: Name of the proposing drafter for each node but the root.
        node_probs: (n_nodes - 1,) float32: the drafter's own estimate that a node follows its
            parent, for display and calibration; None where it has none.
        sampled_from: (m, V) float32 probabilities: the law after each of the first m nodes that
            their children were *drawn* from at random, without replacement and in their order;
            m is the number of nodes with children. None means that the tree is a function of
            the past alone, which selects the match rule.
        branching: The shape of a tree that was drawn at random; None for a chain.
        path_probs: Per node but the root, the drafter's estimate that its whole path comes true,
            never more than that of the node before; then the arrays of the tree are no lazy ones.
            None where it is not known on the host.
    """

    tree: DraftTree
    sources: tuple[str, ...] = ()
    node_probs: mx.array | None = None
    sampled_from: mx.array | None = None
    branching: Branching | None = None
    path_probs: Sequence[float] | None = None

    @staticmethod
    def empty(root: int) -> "Draft":
        """Return the draft that proposes nothing: plain decoding."""
        return Draft(DraftTree.from_lists([root], [-1]))

    @staticmethod
    def from_lists(
        tokens: Sequence[int],
        parents: Sequence[int],
        sources: Sequence[str],
        node_probs: Sequence[float] | None = None,
        path_probs: Sequence[float] | None = None,
    ) -> "Draft":
        """Return a deterministic draft from lists; tokens and parents start with the root's."""
        tree = DraftTree.from_lists(tokens, parents)
        probs = None if node_probs is None else mx.array(list(node_probs), mx.float32)
        return Draft(tree, tuple(sources), probs, path_probs=path_probs)

    def first(self, count: int) -> "Draft":
        """Return the first `count` nodes below the root of a draft with `path_probs`."""
        assert self.path_probs is not None
        if count >= self.tree.n_nodes - 1:
            return self
        end = count + 1
        tree = DraftTree.from_lists(values(self.tree.tokens)[:end], values(self.tree.parents)[:end])
        probs = None if self.node_probs is None else mx.array(values(self.node_probs)[:count])
        return Draft(tree, self.sources[:count], probs, path_probs=self.path_probs[:count])


@dataclass(frozen=True)
class RoundOutcome:
    """What one target forward decided, read on the host.

    Attributes:
        tokens: Token of each node of the tree, root first.
        parents: Parent of each node, -1 at the root.
        path: Accepted nodes from the root down, the root (0) first.
        bonus_token: The token the target added; the root of the next round.
        top_tokens: Per node, the target's most probable next tokens, best first; empty unless
            the drafter asks for them with `num_top_tokens`.
        top_probs: Their probabilities under the target at temperature 1, before any filter.
    """

    tokens: Sequence[int]
    parents: Sequence[int]
    path: Sequence[int]
    bonus_token: int
    top_tokens: Sequence[Sequence[int]] = ()
    top_probs: Sequence[Sequence[float]] = ()

    @property
    def accepted(self) -> list[int]:
        """Tokens of the accepted nodes, root left out."""
        return [self.tokens[index] for index in self.path[1:]]
