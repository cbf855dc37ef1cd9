"""SiLU, attention and the product with a head, put together another way where MLX is slow at them.

That is on a CPU without Apple's libraries, for the reasons in `exponential` and in `tall_product`;
elsewhere MLX's fused kernels serve.
"""

import mlx.core as mx
import mlx.nn as nn

from mlxspec import backend
from mlxspec.exponential import exp, is_slow

_BLOCK = 768  # rows of a matrix


def silu(x: mx.array) -> mx.array:
    """Return x * sigmoid(x), of any shape."""
    result: mx.array = x / (1.0 + exp(-x)) if is_slow(x) else nn.silu(x)
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
        mask: (L, S) or (B, 1, L, S) bool, "causal" with the last query at the last key, or None for
            no mask.

    Returns:
        (B, H, L, D).
    """
    B, H, L, D = queries.shape
    Hkv, S = keys.shape[1:3]
    if not is_slow(queries):
        return mx.fast.scaled_dot_product_attention(queries, keys, values, scale=scale, mask=mask)
    grouped = (queries * scale).reshape(B, Hkv, -1, D)  # heads of one group share a product
    scores = (grouped @ keys.swapaxes(-1, -2)).reshape(B, Hkv, H // Hkv, L, S)
    if isinstance(mask, str):
        mask = mx.arange(S - L, S)[:, None] >= mx.arange(S)
    if mask is not None and mask.ndim == 4:
        mask = mask[:, :, None]  # heads stand in groups here
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
