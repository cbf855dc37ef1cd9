"""What MLX computes slowly on an x86 processor, put together another way.

There MLX computes exponentials and powers one element at a time, but `exp` takes 12 ns and `power`
5 ns; in a forward of a small model that is more than the matrix products take. Raising e, rounded
to float32, to x is off by x times 3e-8 of the result, as much as rounding x itself. Elsewhere MLX's
fused kernels serve.
"""

import math

import mlx.core as mx
import mlx.nn as nn

from mlxspec import backend

_BLOCK = 768  # rows of a matrix


def silu(x: mx.array) -> mx.array:
    """Return x * sigmoid(x), of any shape."""
    result: mx.array = x / (1.0 + exp(-x)) if _is_slow(x) else nn.silu(x)
    return result


def attend(
    queries: mx.array,
    keys: mx.array,
    values: mx.array,
    *,
    scale: float,
    mask: mx.array | str | None,
) -> mx.array:
    """Return grouped-query attention, as `mx.fast.scaled_dot_product_attention` does.

    Args:
        queries: (B, H, L, D).
        keys: (B, Hkv, S, D), where Hkv divides H.
        values: (B, Hkv, S, D).
        scale: Multiplies the scores.
        mask: (L, S) bool, "causal" with the last query at the last key, or None for no mask.

    Returns:
        (B, H, L, D).
    """
    B, H, L, D = queries.shape
    Hkv, S = keys.shape[1:3]
    if not _is_slow(queries):
        return mx.fast.scaled_dot_product_attention(queries, keys, values, scale=scale, mask=mask)
    grouped = (queries * scale).reshape(B, Hkv, -1, D)  # heads of one group share a product
    scores = (grouped @ keys.swapaxes(-1, -2)).reshape(B, Hkv, H // Hkv, L, S)
    if isinstance(mask, str):
        mask = mx.arange(S - L, S)[:, None] >= mx.arange(S)
    if mask is not None:
        scores = mx.where(mask, scores, -mx.inf)
    weights = exp(scores - scores.max(axis=-1, keepdims=True))
    total = weights.sum(axis=-1, keepdims=True)
    output = weights.reshape(B, Hkv, -1, S) @ values
    return (output.reshape(B, Hkv, H // Hkv, L, D) / total).reshape(B, H, L, D)


def tall_product(x: mx.array, weight: mx.array) -> mx.array:
    """Return the (..., V) products of (..., D) rows and a (V, D) matrix of many rows.

    OpenBLAS packs a matrix into its own order before it multiplies, which for a head is more work
    than the product; blocks that stay in a core's cache are packed faster or, for a row or two,
    not at all: on one core a head takes half the time, on two a fifth less.
    """
    V = weight.shape[0]
    if not backend.lacks_accelerate() or V <= _BLOCK:
        return x @ weight.T
    blocks = [x @ weight[start : start + _BLOCK].T for start in range(0, V, _BLOCK)]
    return mx.concatenate(blocks, axis=-1)


def exp(x: mx.array) -> mx.array:
    """Return the exponential of an array of any shape, exactly 0 at minus infinity."""
    return mx.power(math.e, x) if _is_slow(x) else mx.exp(x)


def _is_slow(x: mx.array) -> bool:
    """Return whether MLX's own exponential of an array like `x` takes longer than a power."""
    return backend.lacks_accelerate() and x.dtype == mx.float32
