"""What the engine asks of a drafter, and what a drafter hands over.

A drafter proposes; it can never change what the target says. It is told everything the target
computed in a round (`RoundOutcome`), so that it can learn from rejected nodes too.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import mlx.core as mx

from mlxspec.tree import DraftTree


@dataclass(frozen=True)
class Draft:
    """A draft tree and how it came about.

    Attributes:
        tree: The root and the proposed nodes; tokens and parents may be lazy.
        sources: Name of the proposing drafter for each node but the root.
        node_probs: (n_nodes - 1,) float32: the drafter's own estimate that a node follows its
            parent, for display and calibration; None where it has none.
        sampled_from: (n_nodes - 1, V) float32 probabilities: the law that each node's token was
            *drawn* from, for a chain sampled at random. None means that the tree is a
            function of the past alone, which selects the match rule.
    """

    tree: DraftTree
    sources: tuple[str, ...] = ()
    node_probs: mx.array | None = None
    sampled_from: mx.array | None = None

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
    ) -> "Draft":
        """Return a deterministic draft from lists; tokens and parents start with the root's."""
        tree = DraftTree.from_lists(tokens, parents)
        probs = None if node_probs is None else mx.array(node_probs, mx.float32)
        return Draft(tree, tuple(sources), probs)


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


class Drafter(Protocol):
    """Proposes draft trees for one target.

    `propose` must not depend on anything but what `start` and `update` told it and, for sampled
    drafts, its own random key.

    Attributes:
        name: The word that selects it, and the source it states.
        num_top_tokens: How many of the target's most probable next tokens per verified node it
            wants to be told in `update`; 0 for none.
    """

    name: str
    num_top_tokens: int

    def start(self, prompt: Sequence[int]) -> None:
        """Begin a reply to `prompt`, all tokens of the conversation so far.

        What was learned in earlier replies of the session may be kept. The last token of the
        prompt is the first root.
        """

    def propose(self, root: int, budget: int) -> Draft:
        """Return a draft of at most `budget` nodes, the root not counted, below `root`.

        The root is the last token emitted (or the last of the prompt); fewer nodes, or none,
        are always allowed. No two siblings may hold the same token.
        """

    def update(self, outcome: RoundOutcome) -> None:
        """Learn what the target decided about the draft proposed last."""
