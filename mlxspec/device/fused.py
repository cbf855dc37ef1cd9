"""Operations by MLX's own kernels: on GPUs, and on CPUs with Apple's libraries.

Quantised keys and values have no fused kernel. On a GPU a few rows are multiplied with them in
their packed form, which loads a quarter or less of the bytes. Otherwise they are unpacked first: on
a CPU a packed product takes n times as long for n rows (8 rows over 8,192 tokens: 38 ms packed,
7 ms unpacked), and for the many rows of a prompt unpacking costs little compared to the products.
"""

import mlx.core as mx
import mlx.nn as nn

from mlxspec.device import backend, turns
from mlxspec.device.mask import FEW_ROWS, SharedMask
from mlxspec.device.packed import PackedRows, Rows, unpacked


def silu(x: mx.array) -> mx.array:
    """Return x * sigmoid(x)."""
    result: mx.array = nn.silu(x) if turns.may_compile() else x * mx.sigmoid(x)
    return result


def softmax(x: mx.array) -> mx.array:
    """Return the softmax of (..., n) numbers over the last axis."""
    return mx.softmax(x, axis=-1, precise=True)


def log_sum_exp(x: mx.array) -> mx.array:
    """Return the log-sum-exp of (..., n) numbers over the last axis, of shape (...)."""
    return mx.logsumexp(x, axis=-1)


def product(layer: nn.Module, x: mx.array) -> mx.array:
    """Return the (..., o) products of (..., D) rows with a layer's matrix."""
    products: mx.array
    if isinstance(layer, nn.Linear):
        products = nn.Linear.__call__(layer, x)
    elif isinstance(layer, nn.Embedding):
        products = nn.Embedding.as_linear(layer, x)
    elif isinstance(layer, nn.QuantizedEmbedding):
        products = layer.as_linear(x)
    else:
        products = layer(x)
    return products


def heads(products: mx.array, head_dim: int) -> mx.array:
    """Return (B, H, L, head_dim) of (B, L, H * head_dim)."""
    B, L, _ = products.shape
    return products.reshape(B, L, -1, head_dim).transpose(0, 2, 1, 3)


def rotate(x: mx.array, positions: int | mx.array, wavelengths: mx.array) -> mx.array:
    """Return (B, H, L, D) rows, each rotated by its position; the dtype is kept."""
    if isinstance(positions, int):
        return _rotate(x, positions, wavelengths)
    B, H, L, D = x.shape
    # `mx.fast.rope` has one offset per entry of the batch axis, so rows move to that axis.
    offsets = mx.broadcast_to(positions, (B, L)).reshape(-1)
    rows = _rotate(x.swapaxes(1, 2).reshape(B * L, H, 1, D), offsets, wavelengths)
    return rows.reshape(B, L, H, D).swapaxes(1, 2)


def _rotate(x: mx.array, offset: int | mx.array, wavelengths: mx.array) -> mx.array:
    return mx.fast.rope(
        x,
        x.shape[-1],
        traditional=False,
        base=None,
        scale=1.0,
        offset=offset,
        freqs=wavelengths,
    )


def attend(queries: mx.array, keys: Rows, values: Rows, scale: float, mask: SharedMask) -> mx.array:
    """Return grouped-query attention (B, H, L, D)."""
    stay_packed = queries.shape[2] <= FEW_ROWS and not backend.is_cpu()
    if isinstance(keys, PackedRows) and isinstance(values, PackedRows) and stay_packed:
        return _attend_packed(queries, keys, values, scale, mask)
    return mx.fast.scaled_dot_product_attention(
        queries, unpacked(keys), unpacked(values), scale=scale, mask=mask.mask
    )


def _attend_packed(
    queries: mx.array, keys: PackedRows, values: PackedRows, scale: float, mask: SharedMask
) -> mx.array:
    B, _, L, D = queries.shape
    Hkv, S = keys.shape[1:3]
    scores = keys.dot((queries * scale).reshape(B, Hkv, -1, D))
    if mask.mask is not None:
        scores = mask.hide(scores, L, S)
    weights = mx.softmax(scores, axis=-1, precise=True)
    return values.mixed(weights).reshape(queries.shape)
