"""Random noise as a function of only the seed and the position in the text, and draws with it.

The token at position t is a function of its distribution p and of Gumbel noise G_t, which does not
depend on the draft. So every draft that the match rule verifies gives the text of plain sampling
with the same seed (Daliri et al. 2024, https://arxiv.org/abs/2408.07978). Nodes of one depth share
their noise: at most one of them is on the path, so only one draw counts. All other random numbers
come from separate streams, independent of the token noise.

The argmax of log p + noise, with independent Gumbel noise for every choice, is a draw from p. The
first stage draws a block of the vocabulary by its mass, the second a token of that block, because
noise for the whole vocabulary takes longer to generate than the rest of verification.

A rare token needs the upper tail of the noise. Here that comes from uniforms near 0, which float32
resolves to 2**-32. MLX's own noise takes it from uniforms near 1, resolved to 2**-24, and so loses
tokens below 1e-7, as does its inverse CDF over a single row.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import mlx.core as mx

BLOCK = 128

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


def gumbel(count: int, vocab_size: int, key: mx.array) -> mx.array:
    """Return noise for `count` draws: (count, num_noises(vocab_size)) float32, at most 22.9."""
    return gumbel_of(mx.random.uniform(shape=(count, num_noises(vocab_size)), key=key))


def num_noises(vocab_size: int) -> int:
    """Return the noise numbers of a draw: one per token of a block, then one per block."""
    if vocab_size <= BLOCK:
        return vocab_size
    return BLOCK + -(-vocab_size // BLOCK)


def gumbel_of(uniforms: mx.array) -> mx.array:
    """Map float32 uniforms to Gumbel noise."""
    v = mx.maximum(uniforms, 2.0**-33)  # 0 would give infinity
    rest = 1 - v
    # log(1 - v) as exact as log1p, in half its time on a CPU: the rounding of 1 - v cancels.
    return -mx.log(mx.where(rest == 1, v, v * mx.log(rest) / (rest - 1)))


def draw(probs: mx.array, noise: mx.array) -> mx.array:
    """Return one draw per row of (n, V) probabilities, (n,) int32; zero mass is never drawn.

    Args:
        probs: (n, V) float32; a row need not sum to 1.
        noise: (n, num_noises(V)) float32 Gumbel noise; rows with equal noise are coupled draws.
    """
    n, width = probs.shape
    if width <= BLOCK:
        return _largest(probs, noise)
    missing = -width % BLOCK  # 0 for most vocabularies; a pad would copy all probabilities
    whole = mx.pad(probs, [(0, 0), (0, missing)]) if missing else probs
    blocks = whole.reshape(n, -1, BLOCK)
    block = _largest(blocks.sum(axis=-1), noise[:, BLOCK:])
    inside = mx.take_along_axis(blocks, block[:, None, None], axis=1)[:, 0]
    return block * BLOCK + _largest(inside, noise[:, :BLOCK])


def draw_several(probs: mx.array, noises: Sequence[mx.array]) -> mx.array:
    """Return k draws without replacement per row, (n, k) int32, in the order of the draws.

    If a row has fewer than k tokens with mass, tokens without mass fill the rest.

    Args:
        probs: (n, V) float32; a row need not sum to 1.
        noises: The noise of each of the k draws, shaped as for `draw`. The draws have the right
            distribution only if their noises are independent.
    """
    is_left = mx.ones(probs.shape, mx.bool_)
    drawn: list[mx.array] = []
    for noise in noises:
        mass = mx.where(is_left, probs, 0.0)
        mass = mx.where(mass.sum(axis=-1, keepdims=True) > 0, mass, is_left)
        drawn.append(draw(mass, noise))
        is_left = is_left & (mx.arange(probs.shape[1]) != drawn[-1][:, None])
    return mx.stack(drawn, axis=1)


def _largest(weights: mx.array, noise: mx.array) -> mx.array:
    return mx.argmax(mx.log(weights) + noise, axis=-1).astype(mx.int32)
