"""The draft tree of heads that guess several tokens ahead at once, made on the device.

Such heads guess the same tokens below every node of a depth. A path is then a tuple of ranks:
(0, 2) is the first head's best guess followed by the second head's third. Its probability is a
product of one number per head (Medusa, Cai et al. 2024, https://arxiv.org/abs/2401.10774). The tree
has the most probable paths of the round (OPT-Tree, Wang et al. 2024,
https://arxiv.org/abs/2406.17276). The paths that can be among them are few and known in advance, so
the choice is a sum, a sort and a gather, without a host synchronisation.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from math import log

import mlx.core as mx

from mlxspec.device.ops import exp
from mlxspec.drafters.search.beam import NextTokens
from mlxspec.params import FREE, DraftLimits

_WIDTH = 10  # largest number of guesses per head
_LEAST_LOGPROB = -60.0  # its exponential is still above 0 in float32


RankPath = tuple[int, ...]


@dataclass(frozen=True)
class RankNodes:
    """The nodes of a draft below the root; lazy.

    Attributes:
        tokens: (n,) int32 tokens of the target's vocabulary.
        parents: (n,) int32 index of each node's parent in the draft, where 0 is the root.
        probs: (n,) float32 estimate that each node follows its parent, or None.
    """

    tokens: mx.array
    parents: mx.array
    probs: mx.array | None


class RankTree:
    """The most probable paths, chosen again in every round.

    Nodes are in order of falling path probability: the first n are the best tree of n nodes. The
    heads' probabilities distinguish certain positions from uncertain ones; the measured accuracies
    of their ranks show how reliable a head is. Their geometric mean is better than either alone.
    """

    def __init__(self, accuracies: Sequence[Sequence[float]] | None = None) -> None:
        """Take measured accuracies, if given: per head, the share of correct guesses of each rank.

        Raises:
            ValueError: An accuracy is not from 0 to 1.
        """
        if not all(0 <= share <= 1 for row in accuracies or () for share in row):
            raise ValueError(f"accuracies are shares from 0 to 1; got {accuracies}")
        self._log_shares = [_falling_logs(row) for row in accuracies or ()]

    @property
    def depth(self) -> int:
        """The smallest number of heads that it needs."""
        return len(self._log_shares)

    def nodes(
        self,
        logits: mx.array,
        target_ids: mx.array | None,
        budget: int,
        limits: DraftLimits = FREE,
    ) -> RankNodes:
        """Return at most `budget` nodes, parents before children, no two siblings alike.

        Args:
            logits: (H, V) logits of the heads, the one for depth 1 first.
            target_ids: (V,) int32 target token of each output; None where they are equal.
            budget: At least 1.
            limits: Limits on width and depth.
        """
        most = min(budget, limits.branching or budget)
        guesses = self._weighed(best_guesses(logits, target_ids, most)).first(limits.depth)
        n_heads, width = guesses.tokens.shape
        paths = _layout(possible_paths(n_heads, width, budget), n_heads)
        order = mx.argsort(_sort_keys(_path_logprobs(paths, guesses.log_probs)))
        chosen = order[:budget]
        nodes = mx.argsort(order).astype(mx.int32) + 1  # node 0 is the root
        above = paths.parents[chosen]
        parents = mx.where(above < 0, 0, nodes[mx.maximum(above, 0)])
        heads, ranks = paths.heads[chosen], paths.last_ranks[chosen]
        return RankNodes(
            guesses.tokens[heads, ranks], parents, exp(guesses.log_probs[heads, ranks])
        )

    def _weighed(self, guesses: NextTokens) -> NextTokens:
        if not self._log_shares:
            return guesses
        depth, width = self.depth, min(guesses.tokens.shape[1], *map(len, self._log_shares))
        measured = mx.array([row[:width] for row in self._log_shares])
        log_probs = (guesses.log_probs[:depth, :width] + measured) / 2
        return NextTokens(guesses.tokens[:depth, :width], log_probs)


@lru_cache(maxsize=64)
def possible_paths(num_heads: int, width: int, budget: int) -> tuple[RankPath, ...]:
    """Return the paths that can be among the `budget` most probable, for any probabilities.

    No path is better than a path that is not longer and whose ranks are nowhere larger. A path is
    left out if such paths, itself included, are more than `budget`.

    Args:
        num_heads: Length of the longest path.
        width: Guesses per head.
        budget: Number of paths to choose later.

    Returns:
        Paths in lexical order: each after its prefixes and after all paths that are at least as
        probable for any probabilities.
    """

    def below(path: RankPath, alike: int, better: int) -> Iterator[RankPath]:
        for rank in range(width):
            as_long = alike * (rank + 1)  # paths of this length with ranks nowhere larger
            if better + as_long > budget:
                return
            yield (*path, rank)
            if len(path) + 1 < num_heads:
                yield from below((*path, rank), as_long, better + as_long)

    return tuple(below((), 1, 0))


def best_guesses(logits: mx.array, target_ids: mx.array | None, most: int) -> NextTokens:
    """Return the most probable tokens of each head, best first; log-probabilities are at most 0.

    `logits` are (H, V), and `target_ids` the (V,) int32 target token of each output, None where
    they are equal. There are `most` guesses per head, at most ten.
    """
    guesses = NextTokens.of(logits, min(most, _WIDTH), target_ids)
    is_usual = guesses.log_probs > _LEAST_LOGPROB  # False for a NaN too
    log_probs = mx.where(is_usual, mx.minimum(guesses.log_probs, 0.0), _LEAST_LOGPROB)
    return NextTokens(guesses.tokens, log_probs)


def _falling_logs(shares: Sequence[float]) -> list[float]:
    """Return the logarithms of shares, none above the one before: ranks must stay in order."""
    logs = (log(share) if share > 0 else _LEAST_LOGPROB for share in shares)
    return list(accumulate(logs, min))


@dataclass(frozen=True)
class _Layout:
    """Paths as arrays. None is lazy: they are cached, and another thread may use them.

    Attributes:
        ranks: Per head, (n,) int32 rank of each path; -1 below its end.
        heads: (n,) int32 head of the last node of each path.
        last_ranks: (n,) int32 rank at the end of each path.
        parents: (n,) int32 index of each path without its end; -1 where that is the root.
    """

    ranks: tuple[mx.array, ...]
    heads: mx.array
    last_ranks: mx.array
    parents: mx.array


@lru_cache(maxsize=64)
def _layout(paths: tuple[RankPath, ...], n_heads: int) -> _Layout:
    index = {path: number for number, path in enumerate(paths)} | {(): -1}
    ranks = [[path[head] if head < len(path) else -1 for path in paths] for head in range(n_heads)]
    return _Layout(
        tuple(mx.array(row, mx.int32) for row in ranks),
        mx.array([len(path) - 1 for path in paths], mx.int32),
        mx.array([path[-1] for path in paths], mx.int32),
        mx.array([index[path[:-1]] for path in paths], mx.int32),
    )


def _path_logprobs(paths: _Layout, logprobs: mx.array) -> mx.array:
    """Return (n,) log-probabilities of paths, none larger than that of its prefix.

    The sum runs head by head, so rounding cannot change this order. A reduction over an axis gives
    no such guarantee.
    """
    total = mx.zeros(paths.heads.shape)
    for ranks, row in zip(paths.ranks, logprobs, strict=True):
        total = total + mx.where(ranks < 0, 0.0, row[mx.maximum(ranks, 0)])
    return total


def _sort_keys(logprobs: mx.array) -> mx.array:
    """Return (n,) int64 keys, all different: the smallest for the largest, first in ties.

    The bits of a non-negative float sort like the float. A sort of the floats themselves would let
    the device order equal ones, and could put a child before its parent.
    """
    count = logprobs.shape[0]
    bits = mx.abs(logprobs).view(mx.int32).astype(mx.int64)
    return bits * count + mx.arange(count)
