"""The history of an EAGLE drafter: pairs of a hidden state and the token after it.

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

import mlx.core as mx

from mlxspec.decoder.hidden import HiddenStates
from mlxspec.drafters.eagle.head import Head
from mlxspec.kv.cache import Cache
from mlxspec.kv.masks import chain_masks, tree_masks

_MAX_UNREAD = 64
"""Pairs that may wait for the next draft; more, as after a prompt, are computed at once."""


class PairHistory:
    """Gets the target's states, makes pairs and runs the drafter's network over them.

    `cache` has one row per pair. `num_read` counts the tokens of the target's history read so far.
    """

    def __init__(self, head: Head, cache: Cache) -> None:
        self.head = head
        self.capture = head.capture
        self.cache = cache
        self.num_read = 0
        self._features: list[mx.array] = []  # features of the latest tokens, in pieces
        self._unread: list[int] = []  # second tokens of the pairs that are not in the cache yet
        self._positions = mx.zeros((0,), mx.int32)  # positions of the staged rows
        self._num_chain = 0  # staged rows before those of the tree

    @property
    def num_pairs(self) -> int:
        """Number of complete pairs, including those not yet in the cache."""
        return self.cache.offset + len(self._unread)

    # ---- the target's history --------------------------------------------------------------

    def read(self, tokens: Sequence[int], states: HiddenStates) -> None:
        if not tokens:
            return
        features = self.head.features(states)
        self._unread += tokens if self._features else tokens[1:]
        self._features.append(features)
        self.num_read += len(tokens)
        if len(self._unread) >= _MAX_UNREAD:
            self._catch_up()
        size = self.cache.max_size
        if size is not None and self.num_read > size:  # a wrapped ring never needs older features
            self._features = [self._latest(len(self._unread) + 1)]

    def forget(self, length: int) -> None:
        """Keep the first `length` tokens; see `HiddenStateReader`.

        If the state of the last of them is lost, or the cache cannot be truncated, the drafter
        restarts with an empty cache: its drafts are worse until it has read some text again.
        """
        if not length:
            self.cache.reset()
            self.num_read, self._features, self._unread = 0, [], []
        if length == self.num_read:
            return
        self.cache.rollback()
        num_pairs = self.num_pairs - (self.num_read - length)
        self._cut(self.num_read - length)
        self.num_read = length
        if self._features and num_pairs >= self.cache.offset:
            del self._unread[num_pairs - self.cache.offset :]
        elif self._features and self.cache.can_truncate(num_pairs):
            self._unread.clear()
            self.cache.truncate(num_pairs)
        else:
            self.cache.reset()
            self._unread.clear()
            self._features = self._features[-1:]

    # ---- drafting --------------------------------------------------------------------------

    def begin(self, root: int) -> tuple[mx.array, mx.array] | None:
        """Stage the unread pairs and the one that `root` completes.

        Returns the (1, D) state for the head and the (1, F) predicted features of the root's pair;
        None if there are no states before the root.
        """
        self.cache.rollback()
        if not self._features:
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
        has no columns for the root's pair and the rows before it. Returns k rows of what `begin`
        returns.
        """
        count = tokens.shape[0]
        positions = mx.repeat(self._positions[-1:] + 1, count)
        self._positions = mx.concatenate([self._positions, positions])
        chain = mx.ones((count, self._num_chain), mx.bool_)
        on_path = mx.concatenate([chain, on_path], axis=1)
        masks = tree_masks(self.cache, self._positions, on_path, (None,))
        return self.head.run(tokens, features, self.cache, positions, masks)

    def end(self) -> None:
        """Commit the unread pairs and drop the drafted rows."""
        self.cache.commit(range(len(self._unread)))
        self._unread = []

    # ---- inside ----------------------------------------------------------------------------

    def _catch_up(self) -> None:
        """Commit the unread pairs and wait for the device, which bounds the memory."""
        self.cache.rollback()
        count = len(self._unread)
        self._run_chain(mx.array(self._unread, mx.int32), self._latest(count + 1)[:-1])
        self.end()
        mx.eval(self.cache.arrays, self._features[-1])

    def _run_chain(self, tokens: mx.array, features: mx.array) -> tuple[mx.array, mx.array]:
        offset, self._num_chain = self.cache.offset, tokens.shape[0]
        self._positions = offset + mx.arange(self._num_chain, dtype=mx.int32)
        masks = chain_masks(self.cache, self._num_chain, (None,))
        return self.head.run(tokens, features, self.cache, offset, masks)

    def _latest(self, count: int) -> mx.array:
        pieces: list[mx.array] = []
        for piece in reversed(self._features):
            pieces.append(piece[-count:])
            count -= pieces[-1].shape[0]
            if not count:
                break
        return mx.concatenate(pieces[::-1])

    def _cut(self, count: int) -> None:
        while self._features and count >= self._features[-1].shape[0]:
            count -= self._features.pop().shape[0]
        if self._features and count:
            self._features[-1] = self._features[-1][:-count]
