"""Draws from a law, fine enough for rare tokens: the Gumbel-max trick, in two stages.

The largest of log p + noise, with Gumbel noise of its own for every choice, is a draw from p. A
token is chosen so from its block of the vocabulary, and the block from all blocks by its mass. A
draw takes noise for the blocks and for the tokens of one of them, instead of for the whole
vocabulary, which takes longer to make than all else that verification computes.

The chance of a rare token lies in the far end of the noise. That end is taken from uniforms near
0, which float32 resolves to 2**-32; MLX's own noise takes it from uniforms near 1, resolved to
2**-24, and its search in sums of a single row does no better: tokens below 1e-7 drown there.
"""

from collections.abc import Sequence

import mlx.core as mx

BLOCK = 128


def gumbel(count: int, vocab_size: int, key: mx.array) -> mx.array:
    """Return the noise of so many draws: (count, num_noises(vocab_size)) float32, at most 22.9."""
    return gumbel_of(mx.random.uniform(shape=(count, num_noises(vocab_size)), key=key))


def num_noises(vocab_size: int) -> int:
    """Return how many numbers a draw takes: one a token of a block, then one a block."""
    if vocab_size <= BLOCK:
        return vocab_size
    return BLOCK + -(-vocab_size // BLOCK)


def gumbel_of(uniforms: mx.array) -> mx.array:
    """Return the noise that float32 uniforms stand for."""
    v = mx.maximum(uniforms, 2.0**-33)  # 0 would give infinity
    rest = 1 - v
    # log(1 - v) as exact as log1p, in half its time on a CPU: the rounding of 1 - v cancels.
    return -mx.log(mx.where(rest == 1, v, v * mx.log(rest) / (rest - 1)))


def draw(probs: mx.array, noise: mx.array) -> mx.array:
    """Return (n,) int32: one draw per row of (n, V) probabilities; zero mass is never drawn.

    Args:
        probs: (n, V) float32; a row need not sum to 1.
        noise: (n, num_noises(V)) float32 of the Gumbel law; rows with one noise draw together.
    """
    n, width = probs.shape
    if width <= BLOCK:
        return _largest(probs, noise)
    missing = -width % BLOCK  # most vocabularies lack none, and a pad would copy them
    whole = mx.pad(probs, [(0, 0), (0, missing)]) if missing else probs
    blocks = whole.reshape(n, -1, BLOCK)
    block = _largest(blocks.sum(axis=-1), noise[:, BLOCK:])
    inside = mx.take_along_axis(blocks, block[:, None, None], axis=1)[:, 0]
    return block * BLOCK + _largest(inside, noise[:, :BLOCK])


def draw_several(probs: mx.array, noises: Sequence[mx.array]) -> mx.array:
    """Return (n, k) int32: draws without replacement per row, in their order.

    Where a row has fewer tokens with mass, others stand for those that are missing.

    Args:
        probs: (n, V) float32; a row need not sum to 1.
        noises: Of each of the k draws, as `draw` takes it. They follow the law where every draw
            has noise of its own.
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
