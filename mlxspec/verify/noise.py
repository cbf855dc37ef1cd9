"""Random noise as a function of only the seed and the position in the text.

The token at position t is a function of its distribution p and of Gumbel noise G_t (`gumbel.draw`),
which does not depend on the draft. So every draft that the match rule verifies gives the text of
plain sampling with the same seed (Daliri et al. 2024, https://arxiv.org/abs/2408.07978). Nodes of
one depth share their noise: at most one of them is on the path, so only one draw counts. All other
random numbers come from separate streams, independent of the token noise.
"""

from dataclasses import dataclass, replace
from typing import Literal

import mlx.core as mx

from mlxspec.verify.gumbel import gumbel_of, num_noises

Stream = Literal["tokens", "verdict", "draft"]
_STREAMS: dict[Stream, int] = {"tokens": 0, "verdict": 1, "draft": 2}


@dataclass(frozen=True)
class Noise:
    """The random noise of a conversation, starting at a position."""

    key: mx.array  # (2,) uint32
    position: int = 0  # of the next token, counted from the start of the conversation

    @staticmethod
    def of_seed(seed: int) -> "Noise":
        """Return the noise of a seed from 0 to 2**64 - 1."""
        # Not the key of the seed itself: `_keys` mixes positions into it, so keys of adjacent seeds
        # would collide.
        return Noise(mx.random.split(mx.random.key(seed))[0])

    def at(self, position: int) -> "Noise":
        """Return the noise of the same conversation at another position."""
        return replace(self, position=position)

    def key_for(self, stream: Stream) -> mx.array:
        """Return a (2,) uint32 random key, unique to this position and stream."""
        return self._keys(1, stream)[0]

    def gumbel(self, count: int, vocab_size: int) -> mx.array:
        """Return the noise that draws the tokens at the next `count` positions.

        Each row of (count, num_noises(vocab_size)) float32 depends only on key and position.
        """
        # One key per row: with one key for all rows, a row would depend on `count`.
        shape = (1, num_noises(vocab_size))
        rows = [mx.random.uniform(shape=shape, key=key) for key in self._keys(count, "tokens")]
        return gumbel_of(mx.concatenate(rows))

    def _keys(self, count: int, stream: Stream) -> mx.array:
        positions = mx.arange(self.position, self.position + count, dtype=mx.uint32)
        counters = mx.stack([mx.full(count, _STREAMS[stream], mx.uint32), positions], axis=1)
        # XOR with a constant is a bijection: different counters never give equal keys.
        return self.key ^ counters
