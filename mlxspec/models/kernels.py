"""SiLU and attention, put together another way where MLX is slow at them.

That is on a CPU without Apple's libraries, for the reasons in `exponential`; elsewhere MLX's
fused kernels serve.
"""

import math

import mlx.core as mx
import mlx.nn as nn

from mlxspec import lanes
from mlxspec.exponential import exp, is_slow

_WORTH_SHARING = 3_000_000  # multiplications of queries and keys: below, sharing costs more


def silu(x: mx.array) -> mx.array:
    """Return x * sigmoid(x), of any shape."""
    result: mx.array = x / (1.0 + mx.power(1 / math.e, x)) if is_slow(x) else nn.silu(x)
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
    _, H, L, D = queries.shape
    Hkv, S = keys.shape[1:3]
    if not is_slow(queries):
        return mx.fast.scaled_dot_product_attention(queries, keys, values, scale=scale, mask=mask)
    work = (L + 2) * S * H * D  # 2: keys and values have to be read
    if lanes.count() < 2 or Hkv == 1 or work < _WORTH_SHARING:
        return _attend(queries, keys, values, scale, mask)
    first = (Hkv + 1) // 2
    n = first * H // Hkv
    halves = lanes.together(
        lambda: _attend(queries[:, :n], keys[:, :first], values[:, :first], scale, mask),
        lambda: _attend(queries[:, n:], keys[:, first:], values[:, first:], scale, mask),
    )
    return mx.concatenate(list(halves), axis=1)


def _attend(
    queries: mx.array,
    keys: mx.array,
    values: mx.array,
    scale: float,
    mask: mx.array | str | None,
) -> mx.array:
    B, H, L, D = queries.shape
    Hkv, S = keys.shape[1:3]
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
