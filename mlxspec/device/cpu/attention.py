"""Attention and rotation for a CPU, where MLX composes both of slow operations.

MLX has no fused attention there: it calls a softmax, whose exponentials are slow (see
`exponential.py`). Here heads that share keys share one product, and over many keys each of two
cores computes half of the heads. For rotations MLX computes cosines and sines again in every layer;
here all layers of a forward share them.
"""

from dataclasses import dataclass

import mlx.core as mx

from mlxspec.device import core_split, fused
from mlxspec.device.cpu.exponential import exp
from mlxspec.device.mask import FEW_ROWS, SharedMask
from mlxspec.device.packed import Rows, unpacked

_WORTH_SHARING = 3_000_000  # multiplications: below this, sharing between cores costs more


def attend(queries: mx.array, keys: Rows, values: Rows, scale: float, mask: SharedMask) -> mx.array:
    """Return grouped-query attention (B, H, L, D)."""
    if queries.dtype != mx.float32:
        return fused.attend(queries, keys, values, scale, mask)
    keys, values = unpacked(keys), unpacked(values)
    _, H, L, D = queries.shape
    Hkv, S = keys.shape[1:3]
    work = (L + 2) * S * H * D  # 2: keys and values must be loaded from memory
    if core_split.count() < 2 or Hkv == 1 or work < _WORTH_SHARING:
        return _attend(queries, keys, values, scale, mask)
    first = (Hkv + 1) // 2
    n = first * H // Hkv
    halves = core_split.together(
        lambda: _attend(queries[:, :n], keys[:, :first], values[:, :first], scale, mask),
        lambda: _attend(queries[:, n:], keys[:, first:], values[:, first:], scale, mask),
    )
    return mx.concatenate(list(halves), axis=1)


def _attend(
    queries: mx.array, keys: mx.array, values: mx.array, scale: float, mask: SharedMask
) -> mx.array:
    scores = _scores(queries, keys, scale, mask)
    weights = exp(scores - scores.max(axis=-1, keepdims=True))
    output = (weights @ values) / weights.sum(axis=-1, keepdims=True)
    return output.reshape(queries.shape)


def _scores(queries: mx.array, keys: mx.array, scale: float, mask: SharedMask) -> mx.array:
    """Return (B, Hkv, H / Hkv * L, S) scores: heads of one group share a product."""
    B, H, L, D = queries.shape
    Hkv, S = keys.shape[1:3]
    grouped, transposed = (queries * scale).reshape(B, Hkv, -1, D), keys.swapaxes(-1, -2)
    if mask.mask is None:
        return grouped @ transposed
    if L <= FEW_ROWS:
        return mx.addmm(mask.added(H // Hkv, L, S), grouped, transposed)
    return mask.hide(grouped @ transposed, L, S)


@dataclass(frozen=True)
class Angles:
    """The rotations of L rows, computed once for all layers of a forward.

    Attributes:
        cosines: (L, head_dim) float32, both halves equal; (B, 1, L, head_dim) if each sequence of a
            batch has its own positions.
        sines: The same shape, the first half negated.
    """

    cosines: mx.array
    sines: mx.array

    @staticmethod
    def of(positions: mx.array, frequencies: mx.array, num_pairs: int) -> "Angles":
        """Return the angles of (L,) or (B, L) int32 positions.

        `frequencies` are the (n,) float32 angles per token of each pair, padded at the end;
        `num_pairs` is the number of pairs of a head.
        """
        angles = positions.astype(mx.float32)[..., None] * frequencies
        if positions.ndim == 2:
            angles = angles[:, None]
        cosines, sines = mx.cos(angles)[..., :num_pairs], mx.sin(angles)[..., :num_pairs]
        return Angles(
            mx.concatenate([cosines, cosines], axis=-1), mx.concatenate([-sines, sines], axis=-1)
        )

    def rotate(self, x: mx.array) -> mx.array:
        """Return (B, H, L, D) rows, each rotated by its angles, in the dtype of `x`."""
        crossed = mx.roll(x, x.shape[-1] // 2, -1)
        return (x * self.cosines + crossed * self.sines).astype(x.dtype)
