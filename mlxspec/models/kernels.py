"""SiLU and attention, by way of a faster exponential where MLX's own is slow.

On x86 MLX computes `exp` one element at a time, 12 ns each; in a forward of a small model that is
more than the matrix products take. There it is put together from a dozen vectorised operations in
a third of the time and as exactly (range reduction after Cody & Waite 1980, a polynomial for what
is left, the power of two written into the exponent bits). Elsewhere, and for arrays as large as
those of a prompt, MLX's fused kernels serve.
"""

from typing import cast

import mlx.core as mx
import mlx.nn as nn

from mlxspec import backend

MAX_SIZE = 1 << 19
"""Of an array: with more elements the parts no longer fit in a processor's cache, and the slow way
is the faster one; it also takes a tenth of the memory."""

MAX_SCORES = 1 << 21
"""The same of the scores of attention, where MLX is slow in more than the exponential: the rows of
a draft behind a long text, not those of a prompt."""

_LOG2_E = 1.44269504
_LN2_HIGH, _LN2_LOW = 0.693359375, -2.12194440e-4  # the first has few bits: n times it is exact
_MAGIC = 12582912.0  # 1.5 * 2**23: adding it leaves a rounded integer in the lowest bits
_BIAS = 127.0
_COEFFICIENTS = (1 / 5040, 1 / 720, 1 / 120, 1 / 24, 1 / 6, 1 / 2, 1.0, 1.0)


def silu(x: mx.array) -> mx.array:
    """Return x * sigmoid(x), of any shape."""
    result: mx.array = x / (1.0 + exp(-x)) if _is_slow(x, x.size) else nn.silu(x)
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
    size = B * H * L * S
    if size > MAX_SCORES or not _is_slow(queries, min(size, MAX_SIZE)):
        return mx.fast.scaled_dot_product_attention(queries, keys, values, scale=scale, mask=mask)
    grouped = (queries * scale).reshape(B, Hkv, -1, D)  # heads of one group share a product
    scores = (grouped @ keys.swapaxes(-1, -2)).reshape(B, Hkv, H // Hkv, L, S)
    if isinstance(mask, str):
        mask = mx.arange(S - L, S)[:, None] >= mx.arange(S)
    if mask is not None:
        scores = mx.where(mask, scores, -mx.inf)
    weights = cast(mx.array, _exp_of_parts(scores - scores.max(axis=-1, keepdims=True)))
    total = weights.sum(axis=-1, keepdims=True)
    output = weights.reshape(B, Hkv, -1, S) @ values
    return (output.reshape(B, Hkv, H // Hkv, L, D) / total).reshape(B, H, L, D)


def exp(x: mx.array) -> mx.array:
    """Return the exponential of an array of any shape, exactly 0 at minus infinity."""
    return cast(mx.array, _exp_of_parts(x)) if _is_slow(x, x.size) else mx.exp(x)


def _is_slow(x: mx.array, size: int) -> bool:
    """Return whether MLX's own exponentials of `size` numbers like those of `x` take longer."""
    return backend.has_slow_exp() and x.dtype == mx.float32 and size <= MAX_SIZE


@mx.custom_function
def _exp_of_parts(x: mx.array) -> mx.array:
    y = mx.clip(x, -127 / _LOG2_E, 128 / _LOG2_E)
    shifted = y * _LOG2_E + (_MAGIC + _BIAS)
    power = shifted - (_MAGIC + _BIAS)
    rest = y - power * _LN2_HIGH - power * _LN2_LOW
    polynomial = rest * _COEFFICIENTS[0] + _COEFFICIENTS[1]
    for coefficient in _COEFFICIENTS[2:]:
        polynomial = polynomial * rest + coefficient
    return polynomial * mx.left_shift(shifted.view(mx.int32), 23).view(mx.float32)


@_exp_of_parts.vjp
def _exp_gradient(x: mx.array, cotangent: mx.array, exponential: mx.array) -> mx.array:
    return cotangent * exponential
