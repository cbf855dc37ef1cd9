"""Chance that belongs to a place in the text: a function of the seed and the position alone.

The token at position t is a function of its law p and of Gumbel noise G_t (`draws.draw`). G_t does
not know how the text came to be: what is drafted, how much and by whom decides how many positions a
round covers, not what is said there. So every draft that is verified by the match rule gives the
text of plain sampling with the same seed (Daliri et al. 2024, https://arxiv.org/abs/2408.07978).
Nodes of one depth share their noise: only one of them is on the path, so only one draw from it
counts.

Whatever else is left to chance has streams of its own, independent of those noises.
"""

from dataclasses import dataclass, replace
from typing import Literal

import mlx.core as mx

from mlxspec.verify.gumbel import gumbel

Stream = Literal["tokens", "verdict", "draft"]
_STREAMS: dict[Stream, int] = {"tokens": 0, "verdict": 1, "draft": 2}


@dataclass(frozen=True)
class Noise:
    """The chance of a conversation, seen from one position.

    Attributes:
        key: (2,) uint32 random key of the conversation.
        position: Of the next token, counted from the start of the conversation.
    """

    key: mx.array
    position: int = 0

    @staticmethod
    def of_seed(seed: int) -> "Noise":
        """Return the noise of a seed from 0 to 2**64 - 1."""
        # Not the key of the seed itself: positions are mixed in, and seeds follow each other.
        return Noise(mx.random.split(mx.random.key(seed))[0])

    def at(self, position: int) -> "Noise":
        """Return the same chance, seen from another position."""
        return replace(self, position=position)

    def key_for(self, stream: Stream) -> mx.array:
        """Return a (2,) uint32 random key of this position and no other, nor of another stream."""
        return self._keys(1, stream)[0]

    def gumbel(self, count: int, vocab_size: int) -> mx.array:
        """Return the noise that the tokens at the next `count` positions are drawn with.

        Returns:
            (count, num_noises(vocab_size)) float32: each row depends on the key and its position
            alone.
        """
        # A call per row: with one key for all, a row would depend on how many there are.
        keys = self._keys(count, "tokens")
        return mx.concatenate([gumbel(1, vocab_size, key) for key in keys])

    def _keys(self, count: int, stream: Stream) -> mx.array:
        positions = mx.arange(self.position, self.position + count, dtype=mx.uint32)
        places = mx.stack([mx.full(count, _STREAMS[stream], mx.uint32), positions], axis=1)
        return self.key ^ places
