"""A draft as it is handed over, and the verdict on it as it comes back."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

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

    def bounded(self, vocab_size: int) -> "Draft":
        """Return the draft with a tree as `DraftTree.bounded` makes it."""
        return replace(self, tree=self.tree.bounded(vocab_size))

    def check(self, drafter: str, budget: int, vocab_size: int) -> None:
        """Refuse a draft whose shapes alone show that it is none; nothing is computed.

        Args:
            drafter: Who proposed it.
            budget: Most nodes that it may have, the root not counted.
            vocab_size: Of the target.

        Raises:
            ValueError: It has more nodes, or says of them too much or too little.
        """
        num_nodes = self.tree.n_nodes - 1
        if num_nodes > budget:
            raise ValueError(
                f"the drafter {drafter!r} proposed {num_nodes} nodes; it was given a budget of "
                f"{budget}"
            )
        parents = self._drawn_parents
        num_laws = len(set(parents[1:])) if parents else 0
        for name, got, allowed in (
            ("sources", (len(self.sources),), (num_nodes,)),
            ("node_probs", _shape(self.node_probs), (num_nodes,)),
            ("sampled_from", _shape(self.sampled_from), (num_laws, vocab_size)),
            ("branching", (len(parents or ()),), (num_nodes + 1,) if parents else (0,)),
        ):
            if got is not None and got != allowed:
                raise ValueError(
                    f"the drafter {drafter!r} proposed {num_nodes} nodes with {name} of shape "
                    f"{got}; it has to be {allowed}"
                )

    def check_nodes(
        self, drafter: str, outcome: "RoundOutcome", root: int, vocab_size: int
    ) -> None:
        """Refuse a draft whose nodes, once they are read, are no tree below the root.

        Two siblings with one token are let through: the rules keep the first of them.

        Args:
            drafter: Who proposed it.
            outcome: Its tokens and parents.
            root: The token that it had to begin with.
            vocab_size: Of the target.

        Raises:
            ValueError: It begins with another token, a node stands before its parent or holds no
                token of the vocabulary, or it was drawn in another shape than it says.
        """
        tokens, parents, drawn = outcome.tokens, outcome.parents, self._drawn_parents
        wrong = ""
        if (tokens[0], parents[0]) != (root, -1):
            wrong = f"node 0 holds token {tokens[0]}; it has to be the root {root}"
        for node, (token, parent) in enumerate(zip(tokens[1:], parents[1:], strict=True), 1):
            if not 0 <= parent < node:
                wrong = f"node {node} has parent {parent}; allowed are 0 to {node - 1}"
            elif not 0 <= token < vocab_size:
                wrong = f"node {node} holds token {token}; allowed are 0 to {vocab_size - 1}"
        if not wrong and drawn is not None and list(drawn) != list(parents):
            wrong = f"it was drawn with parents {list(drawn)}; its tree has {list(parents)}"
        if wrong:
            raise ValueError(f"the drafter {drafter!r} proposed what is no draft tree: {wrong}")

    @property
    def _drawn_parents(self) -> Sequence[int] | None:
        """Parent of each node as a tree that was drawn at random has to have them."""
        if self.sampled_from is None:
            return None
        return self.branching.parents if self.branching else range(-1, self.tree.n_nodes - 1)


def _shape(array: mx.array | None) -> tuple[int, ...] | None:
    return None if array is None else array.shape


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
