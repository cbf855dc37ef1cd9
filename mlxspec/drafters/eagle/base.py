"""The common part of the EAGLE drafters: a round drafts from pairs of hidden state and token.

At temperature 0 the drafter grows a dynamic tree on the device. Above it, it draws from its own
distribution q under the target's sampling params and states q: a chain and, where the budget allows
more nodes, branches at the root, drawn without replacement. With `samples` False it proposes the
same tree as at temperature 0, a function of the past, which a pool can merge with other trees.
"""

from copy import copy
from typing import Self

import mlx.core as mx

from mlxspec.decoder.decoder import Decoder
from mlxspec.drafters.eagle.head import Head
from mlxspec.drafters.eagle.history import PairHistory
from mlxspec.drafters.network import HeadNetwork
from mlxspec.drafters.search.beam import BeamShape, Level, NextTokens, grow_beam
from mlxspec.drafters.search.draft_distribution import DrawingDrafter
from mlxspec.drafts.draft import Draft
from mlxspec.drafts.round import Round
from mlxspec.drafts.shape import TreeShape
from mlxspec.drafts.tree import DraftTree
from mlxspec.kv.cache import Cache

DEFAULT_LOOKAHEAD = 5


class EagleBase(DrawingDrafter):
    """Drafts with a network whose input is the target's hidden states."""

    def __init__(
        self,
        network: HeadNetwork,
        target: Decoder,
        *,
        lookahead: int = DEFAULT_LOOKAHEAD,
        samples: bool = True,
    ) -> None:
        """Make a drafter with its own cache, of the same size as the target's if that rotates."""
        super().__init__(target.vocab_size, lookahead, samples)
        self._head = Head(network, target.model)
        cache = Cache(network.num_layers, max_size=target.cache.max_size, keep=target.cache.keep)
        self.history = PairHistory(self._head, cache)

    def fresh_for(self, target: Decoder) -> Self:
        fresh = copy(self)  # the network is shared
        fresh.history = PairHistory(self._head, self.history.cache.empty_like())
        return fresh

    @property
    def readers(self) -> tuple[PairHistory]:
        return (self.history,)

    # ---- rounds ----------------------------------------------------------------------------

    def propose(self, root: int, budget: int) -> Draft:
        """Return the most probable tree, or a sampled one; lazy, without a host synchronisation."""
        if budget < 1:
            return Draft.empty(root)
        begun = self.history.begin(root)
        if begun is None:
            return Draft.empty(root)
        try:
            is_greedy = self._distribution.sampling.is_greedy
            draft = (self._tree if is_greedy else self._drawn)(root, budget, *begun)
        except BaseException:  # an interrupt, too, must not leave staged rows
            self.history.cache.rollback()
            raise
        self.history.end()
        return draft

    def update(self, round: Round) -> None:
        """Count the emitted tokens, unless no draft needs them; `read` brings hidden states."""
        if not self._distribution.sampling.is_greedy:
            super().update(round)

    # ---- inside ----------------------------------------------------------------------------

    def _tree(self, root: int, budget: int, states: mx.array, features: mx.array) -> Draft:
        shape = BeamShape.for_budget(budget, self.limits)
        head, history = self._head, self.history

        def next_tokens(states: mx.array) -> NextTokens:
            return NextTokens.of(head.logits(states), shape.children, head.target_ids)

        def expand(level: Level) -> NextTokens:
            nonlocal features
            states, features = history.extend(level.tokens, features[level.parents], level.on_path)
            return next_tokens(states)

        return grow_beam(root, next_tokens(states), expand, shape, budget, self.name)

    def _drawn(self, root: int, budget: int, states: mx.array, features: mx.array) -> Draft:
        shape = TreeShape.for_budget(budget, self.depth, self.limits.branching)
        on_path = mx.zeros((1, 0), mx.bool_)

        def next_logits(above: DraftTree, last: mx.array) -> mx.array:
            nonlocal states, features, on_path
            if above.n_nodes > 1:
                count = last.shape[0]
                parents = mx.repeat(mx.arange(on_path.shape[0]), count // on_path.shape[0])
                itself = mx.eye(count, dtype=mx.bool_)
                on_path = mx.concatenate([on_path[parents], itself], axis=1)
                states, features = self.history.extend(last, features[parents], on_path)
            return self._head.logits(states)

        ids = self._head.target_ids
        return self._distribution.grow(self.name, root, shape, next_logits, ids)
