"""Draft trees of heads that guess several tokens ahead at once, made on the device.

A static tree takes the same ranks in every round, those that were right most often. A dynamic one
takes the most probable paths of the round; the paths that can be among them are few and known
beforehand (`rank_paths`), so this choice too is a sum, a sort and a gather without a look at any
number (Cai et al. 2024, https://arxiv.org/abs/2401.10774; with the best-first tree of OPT-Tree,
Wang et al. 2024, https://arxiv.org/abs/2406.17276).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from math import log
from typing import Protocol

import mlx.core as mx

from mlxspec.device.exponential import exp
from mlxspec.drafters.medusa.rank_paths import (
    RankPath,
    most_accurate_paths,
    parents_first,
    possible_paths,
)
from mlxspec.drafters.search.beam import NextTokens
from mlxspec.params import FREE, DraftLimits
from mlxspec.verify.distribution import top_tokens

_WIDTH = 10  # guesses of a head that are looked at
_LEAST_LOGPROB = -60.0  # its exponential is still above 0 in float32


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


class RankTree(Protocol):
    """Chooses which guesses of the heads make the tree.

    Attributes:
        depth: Heads that it needs at least.
    """

    @property
    def depth(self) -> int: ...

    def nodes(
        self,
        logits: mx.array,
        target_ids: mx.array | None,
        budget: int,
        limits: DraftLimits = FREE,
    ) -> RankNodes:
        """Return at most `budget` nodes, parents before children, no two siblings alike.

        Args:
            logits: (H, V) what the heads say, the one for depth 1 first.
            target_ids: (V,) int32 target token of each output; None where they agree.
            budget: Most nodes, at least 1.
            limits: How wide and how deep the tree may be.
        """


class DynamicTree:
    """The most probable paths, chosen anew in every round.

    Nodes stand in order of falling path probability: the first n are the best tree of n nodes.
    A head's probabilities tell sure places from unsure ones; how often its ranks were right, where
    that was measured, tells how far it may be trusted. The geometric mean of both does better than
    either.
    """

    def __init__(self, accuracies: Sequence[Sequence[float]] | None = None) -> None:
        """Go by the heads' own probabilities, or by these and measured accuracies.

        Args:
            accuracies: Per head, how often its guess of each rank was right.

        Raises:
            ValueError: An accuracy is not from 0 to 1.
        """
        _check_shares(accuracies or ())
        self._log_shares = [_falling_logs(row) for row in accuracies or ()]

    @property
    def depth(self) -> int:
        return len(self._log_shares)

    def nodes(
        self,
        logits: mx.array,
        target_ids: mx.array | None,
        budget: int,
        limits: DraftLimits = FREE,
    ) -> RankNodes:
        most = min(budget, limits.branching or budget)
        guesses = self._weighed(best_guesses(logits, target_ids, most)).first(limits.depth)
        n_heads, width = guesses.tokens.shape
        paths = _layout(possible_paths(n_heads, width, budget), n_heads)
        order = mx.argsort(_sort_keys(_path_logprobs(paths, guesses.log_probs)))
        chosen = order[:budget]
        places = mx.argsort(order).astype(mx.int32) + 1  # behind the root
        above = paths.parents[chosen]
        parents = mx.where(above < 0, 0, places[mx.maximum(above, 0)])
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


class StaticTree:
    """The same paths in every round; needs no probabilities of the heads and so no softmax.

    A smaller budget gets the beginning of the same order of paths.
    """

    def __init__(
        self,
        choices: Sequence[Sequence[int]] | None = None,
        accuracies: Sequence[Sequence[float]] | None = None,
    ) -> None:
        """Begin with either paths or accuracies.

        Args:
            choices: Paths of ranks, the most useful first, such as published `medusa_choices`;
                the beginnings of every path must be among them.
            accuracies: Per head, how often its guess of each rank was right; the paths with the
                largest products are taken, best first.

        Raises:
            ValueError: Both are given or none, a path hangs in the air, is there twice or holds
                a negative rank, or an accuracy is not from 0 to 1.
        """
        if bool(choices) == bool(accuracies):
            raise ValueError("a static tree is made of choices or of accuracies: give one of them")
        self._choices = parents_first([tuple(path) for path in choices or ()])
        self._accuracies = tuple(tuple(map(float, row)) for row in accuracies or ())
        _check_shares(self._accuracies)

    @property
    def depth(self) -> int:
        return max(len(self._accuracies), *map(len, ((), *self._choices)))

    def paths(self, budget: int) -> tuple[RankPath, ...]:
        """Return the paths of a tree of at most `budget` nodes."""
        return self._choices[:budget] or most_accurate_paths(self._accuracies, budget)

    def nodes(
        self,
        logits: mx.array,
        target_ids: mx.array | None,
        budget: int,
        limits: DraftLimits = FREE,
    ) -> RankNodes:
        depth, width = limits.depth or len(logits), limits.branching or logits.shape[1]
        width = min(width, logits.shape[1])
        paths = tuple(p for p in self.paths(budget) if max(p) < width and len(p) <= depth)
        layout = _layout(paths, len(logits))
        guesses, _ = top_tokens(logits, 1 + max(map(max, paths), default=0))
        tokens = guesses if target_ids is None else target_ids[guesses]
        shares = [self._accuracies[len(path) - 1][path[-1]] for path in paths if self._accuracies]
        probs = mx.array(shares) if self._accuracies else None
        return RankNodes(tokens[layout.heads, layout.last_ranks], layout.parents + 1, probs)


def best_guesses(logits: mx.array, target_ids: mx.array | None, most: int) -> NextTokens:
    """Return what each head finds most probable, best first; log-probabilities are at most 0.

    Args:
        logits: (H, V).
        target_ids: (V,) int32 target token of each output; None where they agree.
        most: Guesses per head, ten at most.
    """
    guesses = NextTokens.of(logits, min(most, _WIDTH), target_ids)
    is_usual = guesses.log_probs > _LEAST_LOGPROB  # False for a NaN too
    log_probs = mx.where(is_usual, mx.minimum(guesses.log_probs, 0.0), _LEAST_LOGPROB)
    return NextTokens(guesses.tokens, log_probs)


def _check_shares(accuracies: Sequence[Sequence[float]]) -> None:
    if not all(0 <= share <= 1 for row in accuracies for share in row):
        raise ValueError(f"accuracies are shares from 0 to 1; got {accuracies}")


def _falling_logs(shares: Sequence[float]) -> list[float]:
    """Return the logarithms of shares, none above the one before: ranks must keep their order."""
    logs = (log(share) if share > 0 else _LEAST_LOGPROB for share in shares)
    return list(accumulate(logs, min))


@dataclass(frozen=True)
class _Layout:
    """Paths as arrays, none of them lazy: they are kept, and another thread may use them.

    Attributes:
        ranks: Per head, (n,) int32 rank of each path; -1 below its end.
        heads: (n,) int32 head that speaks for the end of each path.
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
    """Return (n,) log-probabilities of paths, none larger than that of its beginning.

    Summed head by head: rounding keeps the order then, which a reduction over an axis does not
    promise.
    """
    total = mx.zeros(paths.heads.shape)
    for ranks, row in zip(paths.ranks, logprobs, strict=True):
        total = total + mx.where(ranks < 0, 0.0, row[mx.maximum(ranks, 0)])
    return total


def _sort_keys(logprobs: mx.array) -> mx.array:
    """Return (n,) int64 keys, no two the same, least for the largest and for the first in ties.

    The bits of a float that is not negative are ordered as the float. Were the floats sorted, the
    device would decide which of two equal ones comes first: a child before its parent perhaps.
    """
    count = logprobs.shape[0]
    bits = mx.abs(logprobs).view(mx.int32).astype(mx.int64)
    return bits * count + mx.arange(count)
