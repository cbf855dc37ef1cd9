"""The common part of the EAGLE drafters: a round drafts from pairs of hidden state and token.

At temperature 0 the drafter grows a dynamic tree on the device. Above it, it draws from its own
distribution q under the target's sampling params and states q: a chain and, where the budget allows
more nodes, branches at the root, drawn without replacement. With `samples` False it proposes the
same tree as at temperature 0, a function of the past, which a pool can merge with other trees.
"""

from collections.abc import Callable, Sequence
from copy import copy
from typing import Any, Self

import mlx.core as mx
from mlx import nn

from mlxspec.decoder.decoder import Decoder
from mlxspec.drafters.base import Drafter
from mlxspec.drafters.eagle.head import Head
from mlxspec.drafters.eagle.history import PairHistory
from mlxspec.drafters.search.beam import BeamShape, Level, NextTokens, grow_beam
from mlxspec.drafters.search.draft_distribution import DraftDistribution
from mlxspec.drafts.draft import Draft
from mlxspec.drafts.round import Round
from mlxspec.drafts.shape import TreeShape
from mlxspec.kv.cache import Cache
from mlxspec.models import TargetModel
from mlxspec.params import SamplingParams
from mlxspec.verify.noise import Noise

DEFAULT_LOOKAHEAD = 5


class EagleBase(Drafter):
    """Drafts with a network whose input is the target's hidden states.

    Attributes:
        head_type: The class that joins a network to its target; subclasses set it.
        shape: Width and depth of every tree; None derives them from each budget.
        lookahead: Length of the longest drawn path.
        limits: A depth replaces `lookahead`; `shape` replaces both.
    """

    name: str
    head_type: Callable[[Any, TargetModel], Head]

    def __init__(
        self,
        network: nn.Module,
        target: Decoder,
        *,
        shape: BeamShape | None = None,
        lookahead: int = DEFAULT_LOOKAHEAD,
        samples: bool = True,
    ) -> None:
        """Make a drafter with its own cache, of the same size as the target's if that rotates.

        Raises:
            UnsupportedModelError: The network was made for a target of another size.
            VocabularyMismatchError: It has tokens that the target does not have.
            ValueError: `lookahead` is less than 1.
        """
        head = type(self).head_type(network, target.model)
        if lookahead < 1:
            raise ValueError(f"lookahead must be 1 or more; got {lookahead}")
        self.shape, self.lookahead, self.samples = shape, lookahead, samples
        cache = Cache(head.num_layers, max_size=target.cache.max_size, keep=target.cache.keep)
        self.history = PairHistory(head, cache)
        self._head = head
        self._width = target.vocab_size
        self._shared: Noise | None = None
        self._distribution: DraftDistribution | None = None  # of a reply whose drafts are drawn

    def fresh_for(self, target: Decoder) -> Self:
        fresh = copy(self)  # the network is shared
        fresh.history = PairHistory(self._head, self.history.cache.empty_like())
        return fresh

    @property
    def readers(self) -> tuple[PairHistory]:
        return (self.history,)

    # ---- rounds ----------------------------------------------------------------------------

    def couple(self, noise: Noise | None) -> None:
        self._shared = noise

    def start(self, prompt: Sequence[int], sampling: SamplingParams, key: mx.array) -> None:
        is_drawn = self.samples and not sampling.is_greedy
        self._distribution = None
        if is_drawn:
            self._distribution = DraftDistribution(sampling, key, prompt, self._width, self._shared)

    def propose(self, root: int, budget: int) -> Draft:
        """Return the most probable tree, or a sampled one; lazy, without a host synchronisation."""
        if budget < 1:
            return Draft.empty(root)
        begun = self.history.begin(root)
        if begun is None:
            return Draft.empty(root)
        try:
            if self._distribution is None:
                draft = self._tree(root, budget, *begun)
            else:
                draft = self._drawn(self._distribution, root, budget, *begun)
        except BaseException:  # an interrupt, too, must not leave staged rows
            self.history.drop()
            raise
        self.history.end()
        return draft

    def update(self, round: Round) -> None:
        """Count the emitted tokens for the penalties; hidden states come through `read`."""
        if self._distribution:
            self._distribution.count([*round.accepted, round.bonus_token])

    # ---- inside ----------------------------------------------------------------------------

    def _tree(self, root: int, budget: int, states: mx.array, features: mx.array) -> Draft:
        shape = self.shape or BeamShape.for_budget(budget, self.limits)
        head, history = self._head, self.history

        def next_tokens(states: mx.array) -> NextTokens:
            return NextTokens.of(head.logits(states), shape.children, head.target_ids)

        def expand(level: Level) -> NextTokens:
            nonlocal features
            states, features = history.extend(level.tokens, features[level.parents], level.on_path)
            return next_tokens(states)

        return grow_beam(root, next_tokens(states), expand, shape, budget, self.name)

    def _drawn(
        self,
        q: DraftDistribution,
        root: int,
        budget: int,
        states: mx.array,
        features: mx.array,
    ) -> Draft:
        limits = self.limits
        depth = limits.depth or self.lookahead
        shape = TreeShape.for_budget(budget, depth, limits.branching)
        tokens, distributions = [mx.array([root], mx.int32)], []
        on_path = mx.zeros((1, 0), mx.bool_)
        for depth, width in enumerate(shape.widths, 1):
            so_far = shape.tree(mx.concatenate(tokens))
            distributions.append(q.after(self._head.logits(states), so_far, self._head.target_ids))
            tokens.append(q.draw(distributions[-1], depth, width))
            if depth < len(shape.widths):
                above = mx.repeat(mx.arange(on_path.shape[0]), width)
                itself = mx.eye(above.shape[0], dtype=mx.bool_)
                on_path = mx.concatenate([on_path[above], itself], axis=1)
                states, features = self.history.extend(tokens[-1], features[above], on_path)
        return q.draft(self.name, tokens, distributions, shape)
