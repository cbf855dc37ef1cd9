"""Draws from a distribution with the Gumbel-max trick, in two stages and exact for rare tokens.

The argmax of log p + noise, with independent Gumbel noise for every choice, is a draw from p. The
first stage draws a block of the vocabulary by its mass, the second a token of that block, because
noise for the whole vocabulary takes longer to generate than the rest of verification.

A rare token needs the upper tail of the noise. Here that comes from uniforms near 0, which float32
resolves to 2**-32. MLX's own noise takes it from uniforms near 1, resolved to 2**-24, and so loses
tokens below 1e-7, as does its inverse CDF over a single row.
"""

from collections.abc import Sequence

import mlx.core as mx

BLOCK = 128


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
