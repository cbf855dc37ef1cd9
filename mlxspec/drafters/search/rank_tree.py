"""The draft tree of heads that guess several tokens ahead at once, made on the device.

Such heads guess the same tokens below every node of a depth. A path is then a tuple of ranks:
(0, 2) is the first head's best guess followed by the second head's third. Its probability is a
product of one number per head (Medusa, Cai et al. 2024, https://arxiv.org/abs/2401.10774). The tree
has the most probable paths of the round (OPT-Tree, Wang et al. 2024,
https://arxiv.org/abs/2406.17276). The paths that can be among them are few and known in advance, so
the choice is a sum, a sort and a gather: a third of the operations of a beam.
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

import mlx.core as mx

from mlxspec.device.exponential import exp
from mlxspec.drafters.search.beam import NextTokens
from mlxspec.drafts.draft import Draft
from mlxspec.drafts.tree import DraftTree


def grow_ranks(root: int, guesses: NextTokens, budget: int, source: str) -> Draft:
    """Return the tree of the `budget` most probable paths; node 1 is the most probable.

    `guesses` has a row per depth, with log-probabilities that are finite and at most 0. `budget`
    is at least 1; the root does not count.
    """
    tokens, log_probs = guesses.tokens, guesses.log_probs
    paths = _possible_paths(*tokens.shape, budget)
    # The sum runs head by head, so rounding cannot make a path more probable than its prefix. A
    # reduction over an axis gives no such guarantee.
    total = mx.zeros(paths.heads.shape)
    for ranks, row in zip(paths.ranks, log_probs, strict=True):
        total = total + mx.where(ranks < 0, 0.0, row[mx.maximum(ranks, 0)])
    order = mx.argsort(_sort_keys(total))
    chosen = order[:budget]
    nodes = mx.argsort(order).astype(mx.int32) + 1  # node 0 is the root
    above = paths.parents[chosen]
    parents = mx.where(above < 0, 0, nodes[mx.maximum(above, 0)])
    heads, ranks = paths.heads[chosen], paths.last_ranks[chosen]
    tree = DraftTree(
        mx.concatenate([mx.array([root], mx.int32), tokens[heads, ranks]]),
        mx.concatenate([mx.array([-1], mx.int32), parents]),
        max_depth=tokens.shape[0],
    )
    return Draft(tree, (source,) * (tree.n_nodes - 1), exp(log_probs[heads, ranks]))


class _Paths(NamedTuple):
    """Paths as (n,) int32 arrays. None is lazy: they are cached, for other threads too."""

    ranks: list[mx.array]  # per head, the rank of each path; -1 below its end
    heads: mx.array  # head of the last node of each path
    last_ranks: mx.array  # rank at the end of each path
    parents: mx.array  # index of each path without its end; -1 where that is the root


@lru_cache(maxsize=64)
def _possible_paths(num_heads: int, width: int, budget: int) -> _Paths:
    """Return the paths that can be among the `budget` most probable, for any probabilities.

    A path that is no longer than another one, and has no larger rank, is at least as probable. A
    path is left out if more than `budget` paths, itself included, are at least as probable. The
    others are in lexical order: each after its prefixes and after all those paths.
    """

    def below(path: tuple[int, ...], alike: int, better: int) -> Iterator[tuple[int, ...]]:
        for rank in range(width):
            as_long = alike * (rank + 1)  # paths of this length with ranks nowhere larger
            if better + as_long > budget:
                return
            yield (*path, rank)
            if len(path) + 1 < num_heads:
                yield from below((*path, rank), as_long, better + as_long)

    paths = list(below((), 1, 0))
    index = {path: number for number, path in enumerate(paths)} | {(): -1}
    ends = (-1,) * num_heads
    ranks = zip(*((*path, *ends[len(path) :]) for path in paths), strict=True)
    return _Paths(
        [mx.array(row, mx.int32) for row in ranks],
        mx.array([len(path) - 1 for path in paths], mx.int32),
        mx.array([path[-1] for path in paths], mx.int32),
        mx.array([index[path[:-1]] for path in paths], mx.int32),
    )


def _sort_keys(logprobs: mx.array) -> mx.array:
    """Return (n,) int64 keys, all different: the smallest for the largest, first in ties.

    The bits of a non-negative float sort like the float. A sort of the floats themselves would let
    the device order equal ones, and could put a child before its parent.
    """
    count = logprobs.shape[0]
    bits = mx.abs(logprobs).view(mx.int32).astype(mx.int64)
    return bits * count + mx.arange(count)
