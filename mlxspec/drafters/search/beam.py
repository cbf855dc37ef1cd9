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
from typing import NamedTuple

import mlx.core as mx

from mlxspec.device.exponential import exp
from mlxspec.drafts.draft import Draft
from mlxspec.drafts.tree import DraftTree
from mlxspec.params import FREE, DraftLimits
from mlxspec.verify.distribution import top_tokens

_MAX_WIDTH = 10
_MIN_LOG_PROB = -1e4
_STEP = 1e-6  # about ten times the relative rounding error of float32


class BeamShape(NamedTuple):
    """Width and depth of the beam that grows a tree, each at least 1."""

    width: int  # nodes that each level expands
    depth: int  # levels below the root; all but the first cost a forward of the drafter
    children: int  # of each expanded node

    @staticmethod
    def for_budget(budget: int, limits: DraftLimits = FREE) -> "BeamShape":
        """Return a shape for trees of `budget` nodes, at least one, within the limits.

        Without limits a tree of 4 nodes gets 3 levels, of 8 nodes 4, of 16 nodes 5, of 60 nodes 7.
        """
        width = min(budget, 2 + budget // 4, _MAX_WIDTH)
        depth = min(budget, limits.depth or 1 + (budget - 1).bit_length())
        return BeamShape(width, depth, min(budget, limits.branching or width))


@dataclass(frozen=True)
class NextTokens:
    """The most probable next tokens after each of n nodes, best first."""

    tokens: mx.array  # (n, m) int32 tokens of the target, all different within a row
    log_probs: mx.array  # (n, m) float32

    @staticmethod
    def of(logits: mx.array, count: int, target_ids: mx.array | None = None) -> "NextTokens":
        """Return the `count` best of (n, V) logits, all if there are fewer, as target tokens.

        `target_ids` is the (V,) int32 target token of each logit; None where they are equal.
        """
        logits = logits.astype(mx.float32)
        tokens, best = top_tokens(logits, min(count, logits.shape[-1]))
        total = exp(logits - best[:, :1]).sum(axis=-1, keepdims=True)
        log_probs = best - best[:, :1] - mx.log(total)
        return NextTokens(tokens if target_ids is None else target_ids[tokens], log_probs)


Expand = Callable[[mx.array, mx.array, mx.array], NextTokens]
"""Runs k nodes of one depth through the drafter and returns their next tokens.

It gets their (k,) int32 tokens, the (k,) int32 row of each node's parent in the level before, and
(k, n_rows + k) bool, True where a row of this or an earlier level is on a node's path, the node
included."""


def grow_beam(
    root: int, first: NextTokens, expand: Expand, shape: BeamShape, budget: int, source: str
) -> Draft:
    """Return the tree of the `budget` most probable paths that the beam finds.

    Nodes are in order of falling path probability, so the first n nodes are the best tree of n
    nodes. `first` has one row, the next tokens of the root. `expand` is called once per level below
    the first. `budget` is at least one; the root does not count.
    """
    found: list[tuple[mx.array, ...]] = []  # per depth: tokens, log_probs, scores, parents
    num_before = 0  # nodes of the depths before
    chosen, reached = mx.array([-1], mx.int32), mx.zeros((1,))  # expanded nodes, and their scores
    on_path, children = mx.zeros((1, 0), mx.bool_), first
    while True:
        fan = children.tokens.shape[1]
        log_probs, scores = _scored(children.log_probs, reached)
        tokens = children.tokens.reshape(-1)
        found.append((tokens, log_probs, scores, mx.repeat(chosen, fan)))
        if len(found) == shape.depth:
            return _best(found, root, budget, source)
        best = mx.argsort(-scores)[: shape.width].astype(mx.int32)
        parents = best // fan
        itself = mx.eye(best.shape[0], dtype=mx.bool_)
        on_path = mx.concatenate([on_path[parents], itself], axis=1)
        chosen, reached = best + num_before, scores[best]
        num_before += scores.shape[0]
        children = expand(tokens[best], parents, on_path)


def _scored(log_probs: mx.array, reached: mx.array) -> tuple[mx.array, mx.array]:
    """Return log-probabilities that are numbers, and the scores of the paths.

    A score is strictly less than the parent's, even at probability 1, so that a sort always puts a
    parent before its children.
    """
    log_probs = mx.where(log_probs > _MIN_LOG_PROB, log_probs, _MIN_LOG_PROB)  # also for NaN
    above = reached[:, None]
    scores = mx.minimum(above + log_probs, above * (1 + _STEP) - _STEP)
    return log_probs.reshape(-1), scores.reshape(-1)


def _best(found: list[tuple[mx.array, ...]], root: int, budget: int, source: str) -> Draft:
    tokens, log_probs, scores, parents = map(mx.concatenate, map(list, zip(*found, strict=True)))
    best = mx.argsort(-scores)[:budget]
    num_nodes = best.shape[0]
    nodes = mx.zeros(scores.shape, mx.int32)
    nodes[best] = mx.arange(1, num_nodes + 1, dtype=mx.int32)
    above = parents[best]
    above = mx.where(above < 0, 0, nodes[mx.maximum(above, 0)])
    tree = DraftTree(
        mx.concatenate([mx.array([root], mx.int32), tokens[best]]),
        mx.concatenate([mx.array([-1], mx.int32), above]),
        max_depth=len(found),
    )
    return Draft(tree, (source,) * num_nodes, exp(mx.minimum(log_probs[best], 0.0)))
