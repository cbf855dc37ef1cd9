"""The EAGLE drafters: a round drafts from pairs of a hidden state and the token after it.

The drafter predicts token t + 2 from the target's state at token t and from token t + 1. So the
state of a token waits for the next token. The newest state always waits: the root of a round
completes its pair.

    history      t0      t1      t2      t3     root
    states       g0      g1      g2      g3     (not computed yet)
    pairs      (g0,t1) (g1,t2) (g2,t3) (g3,root)     committed, committed, unread, drafted

The drafter's own cache has the keys and values of the pairs: first those of the prompt, then those
of accepted tokens, always from real states of the target. Drafted rows are dropped after the round.
"""

from collections.abc import Sequence
from copy import copy
from typing import Self

import mlx.core as mx

from mlxspec.decoder.decoder import Decoder
from mlxspec.decoder.hidden import HiddenStates
from mlxspec.drafters.eagle.networks import EagleBase
from mlxspec.drafters.search.beam import BeamShape, NextTokens, grow_beam
from mlxspec.drafters.search.drawing import DrawingDrafter
from mlxspec.drafts.draft import Draft
from mlxspec.drafts.round import Round
from mlxspec.drafts.shape import TreeShape
from mlxspec.drafts.tree import DraftTree
from mlxspec.kv.cache import Cache
from mlxspec.kv.masks import Masks, chain_masks, tree_masks
from mlxspec.kv.storage import GROWTH, RowStore

DEFAULT_LOOKAHEAD = 5
_MAX_UNREAD = 64
"""Pairs that may wait for the next draft; more, as after a prompt, are computed at once."""


class EagleDrafter(DrawingDrafter):
    """Gets the target's states, makes pairs and runs a network over them to draft.

    At temperature 0 the drafter grows a dynamic tree on the device. Above it, it draws from its own
    distribution q under the target's sampling params and states q: a chain and, where the budget
    allows more nodes, branches at the root, drawn without replacement. With `samples` False it
    proposes the same tree as at temperature 0, a function of the past, which a pool can merge with
    other trees.

    The network uses the target's embedding and output head where it has none. `cache` has one row
    per pair.
    """

    def __init__(
        self,
        network: EagleBase,
        target: Decoder,
        *,
        lookahead: int = DEFAULT_LOOKAHEAD,
        samples: bool = True,
    ) -> None:
        """Start with an empty cache, of the same size as the target's if that rotates."""
        super().__init__(target.vocab_size, lookahead, samples)
        self.name = network.name
        self.network = network
        self.capture, self.num_read = network.capture, 0
        size, keep = target.cache.max_size, target.cache.keep
        self.cache = Cache(network.num_layers, max_size=size, keep=keep)
        self._model = target.model
        self._head_rows = None  # of the target's head, for a reduced vocabulary
        if "lm_head" not in network and network.target_ids is not None:
            self._head_rows = target.model.head_rows(network.target_ids)
        self._features = RowStore(None)  # of the latest tokens, (1, 1, L, F)
        self._num_features = 0  # rows of it in use
        self._unread: list[int] = []  # second tokens of the pairs that are not in the cache yet
        self._positions = mx.zeros((0,), mx.int32)  # positions of the staged rows
        self._num_chain = 0  # staged rows before those of the tree

    def fresh_for(self, target: Decoder) -> Self:
        fresh = copy(self)  # the network is shared
        fresh.cache = self.cache.empty_like()
        fresh.forget(0)
        return fresh

    @property
    def num_pairs(self) -> int:
        """Number of complete pairs, including those not yet in the cache."""
        return self.cache.offset + len(self._unread)

    # ---- the target's history --------------------------------------------------------------

    def read(self, tokens: Sequence[int], states: HiddenStates) -> None:
        if not tokens:
            return
        features = self.network.features(states)
        self._unread += tokens if self._num_features else tokens[1:]
        self._features.write(self._num_features, features[None, None])
        self._features.forget()
        self._num_features += len(tokens)
        self.num_read += len(tokens)
        if len(self._unread) >= _MAX_UNREAD:
            self._catch_up()
        size = self.cache.max_size
        spare = self._num_features - len(self._unread) - 1
        # A wrapped ring never needs older features.
        if size is not None and self.num_read > size and spare >= GROWTH:
            self._features.drop_first(spare, self._num_features)
            self._num_features -= spare

    def forget(self, length: int) -> None:
        """Keep the first `length` tokens.

        If the state of the last of them is lost, or the cache cannot be truncated, the drafter
        restarts with an empty cache: its drafts are worse until it has read some text again.
        """
        if not length:
            self.cache.reset()
            self.num_read, self._num_features, self._unread = 0, 0, []
            self._features = RowStore(None)
        if length == self.num_read:
            return
        self.cache.rollback()
        num_pairs = self.num_pairs - (self.num_read - length)
        self._num_features = max(0, self._num_features - (self.num_read - length))
        self.num_read = length
        if self._num_features and num_pairs >= self.cache.offset:
            del self._unread[num_pairs - self.cache.offset :]
        elif self._num_features and self.cache.can_truncate(num_pairs):
            self._unread.clear()
            self.cache.truncate(num_pairs)
        else:
            self.cache.reset()
            self._unread.clear()

    def _catch_up(self) -> None:
        """Commit the unread pairs and wait for the device, which bounds the memory."""
        self.cache.rollback()
        count = len(self._unread)
        self._run_chain(mx.array(self._unread, mx.int32), self._latest(count + 1)[:-1])
        self._end()
        mx.eval(self.cache.arrays, self._features.arrays)

    def _latest(self, count: int) -> mx.array:
        (rows,) = self._features.arrays
        return rows[0, 0, self._num_features - count : self._num_features]

    # ---- rounds ----------------------------------------------------------------------------

    def propose(self, root: int, budget: int) -> Draft:
        """Return the most probable tree, or a sampled one; lazy, without a host synchronisation."""
        if budget < 1:
            return Draft.empty(root)
        begun = self._begin(root)
        if begun is None:
            return Draft.empty(root)
        try:
            is_greedy = self.sampling.is_greedy
            draft = (self._tree if is_greedy else self._drawn)(root, budget, *begun)
        except BaseException:  # an interrupt, too, must not leave staged rows
            self.cache.rollback()
            raise
        self._end()
        return draft

    def update(self, round: Round) -> None:
        """Count the emitted tokens, unless no draft needs them; `read` brings hidden states."""
        if not self.sampling.is_greedy:
            super().update(round)

    def _tree(self, root: int, budget: int, states: mx.array, features: mx.array) -> Draft:
        shape, ids = BeamShape.for_budget(budget, self.limits), self.network.target_ids

        def next_tokens(states: mx.array) -> NextTokens:
            return NextTokens.of(self.logits(states), shape.children, ids)

        def expand(tokens: mx.array, parents: mx.array, on_path: mx.array) -> NextTokens:
            nonlocal features
            states, features = self.extend(tokens, features[parents], on_path)
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
                states, features = self.extend(last, features[parents], on_path)
            return self.logits(states)

        return self.grow(root, shape, next_logits, self.network.target_ids)

    # ---- the network -----------------------------------------------------------------------

    def _begin(self, root: int) -> tuple[mx.array, mx.array] | None:
        """Stage the unread pairs and the one that `root` completes.

        Returns the (1, D) state for `logits` and the (1, F) predicted features of the root's pair,
        which replace those of the next token; None if there are no states before the root.
        """
        self.cache.rollback()
        if not self._num_features:
            return None
        tokens = mx.array([*self._unread, root], mx.int32)
        states, features = self._run_chain(tokens, self._latest(tokens.shape[0]))
        return states[-1:], features[-1:]

    def extend(
        self, tokens: mx.array, features: mx.array, on_path: mx.array
    ) -> tuple[mx.array, mx.array]:
        """Stage k nodes, one level deeper than those staged before.

        `tokens` are (k,) int32 and `features` the (k, F) predicted features of their parents.
        `on_path` is (k, n_rows + k) bool, True where a row of this draft is on a node's path; it
        has no columns for the root's pair and the rows before it. Returns k rows of what
        `_begin` returns.
        """
        count = tokens.shape[0]
        positions = mx.repeat(self._positions[-1:] + 1, count)
        self._positions = mx.concatenate([self._positions, positions])
        chain = mx.ones((count, self._num_chain), mx.bool_)
        on_path = mx.concatenate([chain, on_path], axis=1)
        masks = tree_masks(self.cache, self._positions, on_path, (None,))
        return self._run(tokens, features, positions, masks)

    def logits(self, states: mx.array) -> mx.array:
        """Return the (L, V_draft) logits of (L, D) states: the token after each pair.

        Logits beyond the target's vocabulary are dropped, since two heads may be padded
        differently.
        """
        if self._head_rows is not None:
            return self._head_rows(states)
        if "lm_head" not in self.network:
            return self._model.logits(states)
        logits: mx.array = self.network.lm_head(states)
        is_reduced = self.network.target_ids is not None
        return logits if is_reduced else logits[:, : self._model.config.vocab_size]

    def _end(self) -> None:
        """Commit the unread pairs and drop the drafted rows."""
        self.cache.commit(range(len(self._unread)))
        self._unread = []

    def _run_chain(self, tokens: mx.array, features: mx.array) -> tuple[mx.array, mx.array]:
        offset, self._num_chain = self.cache.offset, tokens.shape[0]
        self._positions = offset + mx.arange(self._num_chain, dtype=mx.int32)
        masks = chain_masks(self.cache, self._num_chain, (None,))
        return self._run(tokens, features, offset, masks)

    def _run(
        self, tokens: mx.array, features: mx.array, positions: int | mx.array, masks: Masks
    ) -> tuple[mx.array, mx.array]:
        network = self.network
        if "embed_tokens" in network:
            own = network.embed_tokens
            # The target may be padded to more tokens than its tokenizer has.
            embeddings = own(mx.minimum(tokens, own.weight.shape[0] - 1))
        else:
            embeddings = self._model.embed(tokens)
        embeddings = embeddings.astype(network.dtype)[None]
        states, after = network(embeddings, features[None], self.cache, positions, masks)
        return states[0], after[0]
