"""Grow a draft tree level by level on the device, for a drafter with its own forward.

Each level expands the most probable paths of the level before, in one forward of the drafter under
a tree mask. Then the nodes of all depths compete for the budget, by path probability (EAGLE-2, Li
et al. 2024, https://arxiv.org/abs/2406.16858).

    depth 1   the root's children             the best `width` of them are expanded
    depth 2   width * width nodes             the best `width` of them are expanded, ...
    the tree  the best `budget` nodes of all depths

No host synchronisation is needed: shapes depend on width, depth and budget alone.
"""

from collections.abc import Callable
from dataclasses import dataclass

import mlx.core as mx

from mlxspec.device.ops import exp
from mlxspec.drafts.draft import Draft
from mlxspec.drafts.tree import DraftTree
from mlxspec.params import FREE, DraftLimits
from mlxspec.verify.distribution import top_tokens

_MAX_WIDTH = 10
_MIN_LOG_PROB = -1e4
_STEP = 1e-6  # about ten times the relative rounding error of float32


@dataclass(frozen=True)
class BeamShape:
    """Width and depth of the beam that grows a tree.

    Attributes:
        width: Nodes that each level expands.
        depth: Levels below the root; all but the first cost a forward of the drafter.
        fan: Children of each expanded node; None for `width`.
    """

    width: int
    depth: int
    fan: int | None = None

    @property
    def children(self) -> int:
        return self.width if self.fan is None else self.fan

    def __post_init__(self) -> None:
        if self.width < 1 or self.depth < 1:
            raise ValueError(
                f"a beam needs a width and a depth of 1 or more; got {self.width} and {self.depth}"
            )

    @staticmethod
    def for_budget(budget: int, limits: DraftLimits = FREE) -> "BeamShape":
        """Return a shape for trees of `budget` nodes, at least one, within the limits.

        Without limits a tree of 4 nodes gets 3 levels, of 8 nodes 4, of 16 nodes 5, of 60 nodes 7.
        """
        width = min(budget, 2 + budget // 4, _MAX_WIDTH)
        depth = min(budget, limits.depth or 1 + (budget - 1).bit_length())
        return BeamShape(width, depth, limits.branching and min(budget, limits.branching))


@dataclass(frozen=True)
class NextTokens:
    """The most probable next tokens after each of n nodes, best first.

    Attributes:
        tokens: (n, m) int32 tokens of the target's vocabulary, all different within a row.
        log_probs: (n, m) float32.
    """

    tokens: mx.array
    log_probs: mx.array

    @staticmethod
    def of(logits: mx.array, count: int, target_ids: mx.array | None = None) -> "NextTokens":
        """Return the `count` best of (n, V) logits; all if the vocabulary is smaller.

        `target_ids` is the (V,) int32 target token of each token of the drafter; None where they
        are equal.
        """
        logits = logits.astype(mx.float32)
        tokens, best = top_tokens(logits, min(count, logits.shape[-1]))
        total = exp(logits - best[:, :1]).sum(axis=-1, keepdims=True)
        log_probs = best - best[:, :1] - mx.log(total)
        return NextTokens(tokens if target_ids is None else target_ids[tokens], log_probs)

    def first(self, count: int | None) -> "NextTokens":
        """Return those of the first `count` nodes; None for all."""
        return NextTokens(self.tokens[:count], self.log_probs[:count])


@dataclass(frozen=True)
class Level:
    """Nodes of one depth for a forward of the drafter.

    Attributes:
        tokens: (k,) int32.
        parents: (k,) int32 row of each node's parent in the level before.
        on_path: (k, n_rows + k) bool, True where a row of this or an earlier level is on a node's
            path, the node included.
    """

    tokens: mx.array
    parents: mx.array
    on_path: mx.array


Expand = Callable[[Level], NextTokens]
"""Runs a level through the drafter and returns the next tokens of its nodes."""


def grow_beam(
    root: int, first: NextTokens, expand: Expand, shape: BeamShape, budget: int, source: str
) -> Draft:
    """Return the tree of the `budget` most probable paths that the beam finds.

    Nodes are in order of falling path probability, so the first n nodes are the best tree of n
    nodes. `first` has one row, the next tokens of the root. `expand` is called once per level below
    the first. `budget` is at least one; the root does not count.
    """
    candidates = _Candidates(shape.width)
    candidates.offer(first)
    for _ in range(shape.depth - 1):
        candidates.offer(expand(candidates.choose()))
    return candidates.best(root, budget, source)


class _Candidates:
    """All nodes found so far; the lists have one entry per depth."""

    def __init__(self, width: int) -> None:
        self._width = width
        self._tokens: list[mx.array] = []
        self._log_probs: list[mx.array] = []
        self._scores: list[mx.array] = []
        self._parents: list[mx.array] = []  # among all candidates, -1 for the root
        self._num_before = 0  # candidates of the depths before the last
        self._on_path = mx.zeros((1, 0), mx.bool_)
        self._chosen = mx.array([-1], mx.int32)  # candidates of the level being expanded
        self._reached = mx.zeros((1,))  # their scores

    def offer(self, children: NextTokens) -> None:
        """Add the children of the nodes that were chosen last."""
        count = children.tokens.shape[1]
        log_probs = mx.where(children.log_probs > _MIN_LOG_PROB, children.log_probs, _MIN_LOG_PROB)
        reached = self._reached[:, None]
        # Strictly less than the parent's score, even at probability 1, so that the sort always puts
        # a parent before its children. The comparison above also turns NaN into a number.
        scores = mx.minimum(reached + log_probs, reached * (1 + _STEP) - _STEP)
        if self._tokens:
            self._num_before += self._tokens[-1].shape[0]
        self._tokens.append(children.tokens.reshape(-1))
        self._log_probs.append(log_probs.reshape(-1))
        self._scores.append(scores.reshape(-1))
        self._parents.append(mx.repeat(self._chosen, count))

    def choose(self) -> Level:
        scores = self._scores[-1]
        num_rows = self._chosen.shape[0]
        best = mx.argsort(-scores)[: self._width].astype(mx.int32)
        parents = best // (scores.shape[0] // num_rows)
        above = self._on_path[parents]
        self._on_path = mx.concatenate([above, mx.eye(best.shape[0], dtype=mx.bool_)], axis=1)
        self._chosen, self._reached = best + self._num_before, scores[best]
        return Level(self._tokens[-1][best], parents, self._on_path)

    def best(self, root: int, budget: int, source: str) -> Draft:
        scores, parents = mx.concatenate(self._scores), mx.concatenate(self._parents)
        best = mx.argsort(-scores)[:budget]
        num_nodes = best.shape[0]
        nodes = mx.zeros(scores.shape, mx.int32)
        nodes[best] = mx.arange(1, num_nodes + 1, dtype=mx.int32)
        above = parents[best]
        above = mx.where(above < 0, 0, nodes[mx.maximum(above, 0)])
        tokens = mx.concatenate(self._tokens)[best]
        tree = DraftTree(
            mx.concatenate([mx.array([root], mx.int32), tokens]),
            mx.concatenate([mx.array([-1], mx.int32), above]),
            max_depth=len(self._tokens),
        )
        probs = exp(mx.minimum(mx.concatenate(self._log_probs)[best], 0.0))
        return Draft(tree, (source,) * num_nodes, probs)
