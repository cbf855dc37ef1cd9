"""Draws from a law, fine enough for rare tokens: the Gumbel-max trick.

The largest of log p + noise, with Gumbel noise of its own for every token, is a draw from p. The
chance of a rare token lies in the far end of the noise. That end is taken from uniforms near 0,
which float32 resolves to 2**-32; MLX's own noise takes it from uniforms near 1, resolved to
2**-24, and its search in sums of a single row does no better: tokens below 1e-7 drown there.
"""

from collections.abc import Sequence

import mlx.core as mx


def gumbel(shape: Sequence[int], key: mx.array) -> mx.array:
    """Return float32 noise of the Gumbel law, at most 22.9."""
    return gumbel_of(mx.random.uniform(shape=shape, key=key))


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
        noise: (n, V) float32 of the Gumbel law; rows with one noise draw together.
    """
    return mx.argmax(mx.log(probs) + noise, axis=-1).astype(mx.int32)
