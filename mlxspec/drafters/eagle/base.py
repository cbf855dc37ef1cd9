"""What the drafters of the EAGLE family share: how a round drafts from pairs of state and token.

At temperature 0 the drafter grows a dynamic tree on the device. Above it, it draws from its own law
under the target's filters and says so, which lets verification accept what both laws share: a
chain, and where the budget allows for more, branches at the root, drawn without replacement. Or it
proposes the same tree as at temperature 0, which is a function of the past alone and may be merged
with the trees of other drafters.
"""

from collections.abc import Callable, Sequence
from typing import Any

import mlx.core as mx
from mlx import nn

from mlxspec.drafters.eagle.history import Head, PairHistory
from mlxspec.drafters.search.beam import BeamShape, Level, NextTokens, grow_beam
from mlxspec.drafters.search.draft_distribution import DraftLaw
from mlxspec.drafters.search.reduced_head import head_rows
from mlxspec.drafts.draft import Draft, RoundOutcome
from mlxspec.drafts.shape import Branching
from mlxspec.errors import VocabularyMismatchError
from mlxspec.kv.cache import Cache
from mlxspec.models import Model
from mlxspec.params import FREE, Law
from mlxspec.target.decoder import Decoder
from mlxspec.target.hidden import HiddenStates
from mlxspec.verify.noise import Noise

DEFAULT_LOOKAHEAD = 5

Map = Callable[[mx.array], mx.array]


class EagleBase:
    """Drafts with a network that reads the target's hidden states.

    Attributes:
        name: The word that selects it; set by subclasses.
        head_type: Joins a network to its target; set by subclasses.
        num_top_tokens: 0: nothing is learned from a verdict.
        shape: Width and depth of every tree, or None to take them from the budget.
        lookahead: Longest path to draw.
        samples: Whether it draws above temperature 0; else it proposes the likeliest trees at any
            temperature, as is needed inside a pool. Read at the start of a reply.
        limits: See `LimitedDrafter`; a depth takes the place of `lookahead`. A `shape` goes before.
        history: The pairs it has read, and their cache.
    """

    name: str
    head_type: Callable[[Any, Model], Head]
    num_top_tokens = 0
    limits = FREE

    def __init__(
        self,
        network: nn.Module,
        target: Decoder,
        *,
        shape: BeamShape | None = None,
        lookahead: int = DEFAULT_LOOKAHEAD,
        samples: bool = True,
    ) -> None:
        """Make a drafter with a cache of its own, of the target's size where that rotates.

        Args:
            network: Made for the target.
            target: Whose text is drafted.
            shape: Width and depth of every tree; None fits them to each budget.
            lookahead: Longest path to draw.
            samples: Whether to draw above temperature 0.

        Raises:
            UnsupportedModelError: The network was made for a target of another size.
            VocabularyMismatchError: It speaks of tokens that the target does not have.
            ValueError: `lookahead` is less than 1.
        """
        head = type(self).head_type(network, target.model)
        if lookahead < 1:
            raise ValueError(f"lookahead must be 1 or more; got {lookahead}")
        self.shape, self.lookahead, self.samples = shape, lookahead, samples
        self.capture = head.capture
        cache = Cache(head.num_layers, max_size=target.cache.max_size, keep=target.cache.keep)
        self.history = PairHistory(head, cache)
        self._head = head
        self._width = target.vocab_size
        self._shared: Noise | None = None
        self._law: DraftLaw | None = None  # of a reply whose drafts are drawn

    # ---- the target's states ---------------------------------------------------------------

    @property
    def num_read(self) -> int:
        """Tokens of the target's history read so far."""
        return self.history.num_read

    def read(self, tokens: Sequence[int], states: HiddenStates) -> None:
        self.history.read(tokens, states)

    def forget(self, length: int) -> None:
        self.history.forget(length)

    # ---- rounds ----------------------------------------------------------------------------

    def couple(self, noise: Noise | None) -> None:
        self._shared = noise

    def start(self, prompt: Sequence[int], law: Law, key: mx.array) -> None:
        is_drawn = self.samples and not law.is_greedy
        self._law = None
        if is_drawn:
            self._law = DraftLaw(law, key, prompt, self._width, self._shared)

    def propose(self, root: int, budget: int) -> Draft:
        """Return the likeliest tree, or one drawn at random; lazy, nothing is read on the host."""
        if budget < 1:
            return Draft.empty(root)
        begun = self.history.begin(root)
        if begun is None:
            return Draft.empty(root)
        try:
            if self._law is None:
                draft = self._tree(root, budget, *begun)
            else:
                draft = self._drawn(self._law, root, budget, *begun)
        except BaseException:  # an interrupt too must not leave staged rows
            self.history.drop()
            raise
        self.history.end()
        return draft

    def update(self, outcome: RoundOutcome) -> None:
        if self._law:
            self._law.count([*outcome.accepted, outcome.bonus_token])

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
        self, law: DraftLaw, root: int, budget: int, states: mx.array, features: mx.array
    ) -> Draft:
        limits = self.limits
        depth = limits.depth or self.lookahead
        shape = Branching.for_budget(budget, depth, limits.branching)
        tokens, laws = [mx.array([root], mx.int32)], []
        on_path = mx.zeros((1, 0), mx.bool_)
        for depth, width in enumerate(shape.widths, 1):
            so_far = shape.tree(mx.concatenate(tokens))
            laws.append(law.after(self._head.logits(states), so_far, self._head.target_ids))
            tokens.append(law.draw(laws[-1], depth, width))
            if depth < len(shape.widths):
                above = mx.repeat(mx.arange(on_path.shape[0]), width)
                itself = mx.eye(above.shape[0], dtype=mx.bool_)
                on_path = mx.concatenate([on_path[above], itself], axis=1)
                states, features = self.history.extend(tokens[-1], features[above], on_path)
        return law.draft(self.name, tokens, laws, shape)


class JoinedHead:
    """A network with the target's embedding and head where it has none of its own.

    Attributes:
        target_ids: (draft_vocab,) int32 target token of each draft token, or None.
    """

    def __init__(self, network: Any, model: Model, dtype: mx.Dtype) -> None:
        """Join a network to its target.

        Args:
            network: With `target_ids`, and `embed_tokens` and `lm_head` where it has its own.
            model: The target.
            dtype: Of what the network computes with.

        Raises:
            VocabularyMismatchError: It speaks of tokens that the target does not have.
        """
        self.target_ids: mx.array | None = network.target_ids
        check_vocabulary(self.target_ids, model)
        self._dtype = dtype
        self._embed_tokens = embedding_of(network, model)
        self._output = output_of(network, self.target_ids, model)

    def embed(self, tokens: mx.array) -> mx.array:
        """Return the embeddings (1, L, D) of (L,) tokens."""
        return self._embed_tokens(tokens).astype(self._dtype)[None]

    def logits(self, states: mx.array) -> mx.array:
        """Return (L, V_draft) logits of (L, D) states."""
        return self._output(states)


def embedding_of(network: nn.Module, model: Model) -> Map:
    """Return (n,) tokens to (n, D): the network's own embedding, or else the target's."""
    if "embed_tokens" not in network:
        return model.embed
    last = network.embed_tokens.weight.shape[0] - 1
    # The target may be padded to more tokens than its tokenizer has.
    return lambda tokens: network.embed_tokens(mx.minimum(tokens, last))


def output_of(network: nn.Module, target_ids: mx.array | None, model: Model) -> Map:
    """Return (n, D) to (n, V_draft) logits: the network's own head, or the target's, or its rows.

    A head with more tokens than the target is cut, for both are padded as they like.
    """
    if target_ids is not None:
        return network.lm_head if "lm_head" in network else head_rows(model, target_ids)
    if "lm_head" in network:
        return lambda states: network.lm_head(states)[:, : model.config.vocab_size]
    return model.logits


def check_vocabulary(target_ids: mx.array | None, model: Model) -> None:
    """Raise a `VocabularyMismatchError` where a reduced vocabulary does not fit the target."""
    if target_ids is None:
        return
    last, least, most = model.config.vocab_size - 1, int(target_ids.min()), int(target_ids.max())
    if least < 0 or most > last:
        raise VocabularyMismatchError(
            f"the head speaks of tokens {least} to {most}; the target's are 0 to {last}: choose "
            "the head that was trained for this target"
        )
