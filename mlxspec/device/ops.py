"""The operations of which models are made: one name each for all devices.

There are two implementations. A GPU, and a CPU with Apple's libraries, run MLX's fused kernels
(`fused.py`). Any other CPU computes exponentials as powers, multiplies a few rows in pieces and
shares the work among its cores (`cpu/`, `core_split.py`). The results are the same up to rounding,
so a model does not depend on the choice.
"""

from collections.abc import Callable
from functools import partial

import mlx.core as mx
import mlx.nn as nn

from mlxspec.device import backend, core_split, fused
from mlxspec.device.cpu import attention, exponential, products
from mlxspec.device.cpu.attention import Angles as Angles
from mlxspec.device.mask import Mask, SharedMask
from mlxspec.device.packed import Rows

Positions = int | mx.array | Angles
"""Positions of the L rows of a forward: that of the first of contiguous rows, (L,) int32 positions,
(B, L) if sequences differ, or the result of `prepared_positions`."""


# ---- exponentials ------------------------------------------------------------------------------


def exp(x: mx.array) -> mx.array:
    """Return the exponential of an array of any shape, exactly 0 at minus infinity."""
    return exponential.exp(x) if backend.lacks_accelerate() else mx.exp(x)


def silu(x: mx.array) -> mx.array:
    """Return x * sigmoid(x), of any shape."""
    return exponential.silu(x) if backend.lacks_accelerate() else fused.silu(x)


def softmax(x: mx.array) -> mx.array:
    """Return the softmax of (..., n) numbers over the last axis."""
    return exponential.softmax(x) if backend.lacks_accelerate() else fused.softmax(x)


def log_sum_exp(x: mx.array) -> mx.array:
    """Return the log-sum-exp of (..., n) numbers over the last axis, of shape (...)."""
    return exponential.log_sum_exp(x) if backend.lacks_accelerate() else fused.log_sum_exp(x)


def softmax_and_log_total(x: mx.array) -> tuple[mx.array, mx.array]:
    """Return `softmax(x)` and `log_sum_exp(x)` of (m, n) numbers.

    They share their exponentials where these are slow. Both are lazy: an unused one costs nothing.
    """
    if backend.lacks_accelerate():
        return exponential.softmax_and_log_total(x)
    return fused.softmax(x), fused.log_sum_exp(x)


# ---- products with a layer's matrix ------------------------------------------------------------


def has_own_products() -> bool:
    """Return whether `product` is faster here than a layer's own product."""
    return backend.lacks_accelerate()


class Linear(nn.Linear):
    """`nn.Linear` with the product that is fastest on this device."""

    def __call__(self, x: mx.array) -> mx.array:
        return product(self, x)


def product(layer: nn.Module, x: mx.array, *, is_shared: bool = True) -> mx.array:
    """Return the (..., o) products of (..., D) rows with a layer's matrix.

    `layer` is an `nn.Linear`, an `nn.Embedding` as a head, or a quantised one of either. With
    `is_shared`, the cores of a small CPU share the product.
    """
    if backend.lacks_accelerate():
        return products.product(layer, x, is_shared=is_shared)
    return fused.product(layer, x)


def swiglu(gate: nn.Module, up: nn.Module, x: mx.array) -> mx.array:
    """Return silu(gate x) * up x, (..., o) of (..., D) rows."""
    if backend.lacks_accelerate():
        return products.swiglu(gate, up, x)
    return fused.silu(fused.product(gate, x)) * fused.product(up, x)


def attention_heads(
    x: mx.array, q: nn.Module, k: nn.Module, v: nn.Module, head_dim: int
) -> tuple[mx.array, mx.array, mx.array]:
    """Return queries, keys and values, each (B, H, L, head_dim), of (B, L, D) rows."""
    if backend.lacks_accelerate():
        return products.attention_heads(x, q, k, v, head_dim)
    queries, keys, values = (fused.heads(fused.product(layer, x), head_dim) for layer in (q, k, v))
    return queries, keys, values


# ---- attention ---------------------------------------------------------------------------------


_VECTOR = 16  # float32 numbers in the widest vector register of a CPU


def in_whole_vectors(num_pairs: int) -> int:
    """Return how many frequencies `prepared_positions` needs for `num_pairs` pairs of a head.

    They fill whole vectors. Otherwise the number of rows would decide which cosines the vector unit
    computes, and the rounding of a row would depend on the other rows.
    """
    return num_pairs + -num_pairs % _VECTOR


def shares_angles() -> bool:
    """Return whether the layers of a forward should share the `Angles` of their rotations."""
    return backend.is_cpu()


def prepared_positions(
    positions: int | mx.array, num_rows: int, frequencies: mx.array, num_pairs: int
) -> Positions:
    """Return the positions in the form that rotates fastest when many layers share them.

    `positions` is the position of the first of `num_rows` rows, or those of all rows.
    `frequencies` are the (n,) float32 angles per token of each of `num_pairs` pairs of a head,
    padded to `in_whole_vectors`.
    """
    if not shares_angles():
        return positions
    if isinstance(positions, int):
        positions = mx.arange(positions, positions + num_rows)
    return Angles.of(positions, frequencies, num_pairs)


def rotate(
    queries: mx.array, keys: mx.array, positions: Positions, wavelengths: mx.array
) -> tuple[mx.array, mx.array]:
    """Return queries and keys, each row rotated by its position; dtypes are kept.

    `queries` are (B, H, L, D), `keys` (B, Hkv, L, D), and `wavelengths` the (D / 2,) float32 tokens
    per radian of each pair.
    """
    rotate: Callable[[mx.array], mx.array] = (
        positions.rotate
        if isinstance(positions, Angles)
        else partial(fused.rotate, positions=positions, wavelengths=wavelengths)
    )
    return core_split.together(lambda: rotate(queries), lambda: rotate(keys))


def attend(queries: mx.array, keys: Rows, values: Rows, *, scale: float, mask: Mask) -> mx.array:
    """Return grouped-query attention (B, H, L, D), as `mx.fast.scaled_dot_product_attention` does.

    `queries` are (B, H, L, D). `keys` are (B, Hkv, S, D), where Hkv divides H, and so are `values`,
    packed like the keys or not at all. `scale` multiplies the scores.
    """
    shared = mask if isinstance(mask, SharedMask) else SharedMask(mask)
    run = attention.attend if backend.lacks_accelerate() else fused.attend
    return run(queries, keys, values, scale, shared)
