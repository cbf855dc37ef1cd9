"""SiLU and attention, put together another way where MLX is slow at them.

That is on a CPU without Apple's libraries, for the reasons in `exponential`; elsewhere MLX's
fused kernels serve. Keys and values that are packed have no fused kernel: on a GPU a few rows are
multiplied with them as they are packed, which reads a quarter or less of the bytes. On a CPU such
a product takes n times as long for n rows (8 rows over 8,192 tokens: 38 ms, and 7 ms unpacked), and
for the many rows of a prompt unpacking is little beside the products: there all are unpacked first.
"""

import math

import mlx.core as mx
import mlx.nn as nn

from mlxspec.device import backend, core_split, turns
from mlxspec.device.exponential import exp, is_slow
from mlxspec.kv.storage import PackedRows, Rows, unpacked

_WORTH_SHARING = 3_000_000  # multiplications of queries and keys: below, sharing costs more
_FEW = 64  # rows for which a little more may be held for each head: a mask, or scores


def silu(x: mx.array) -> mx.array:
    """Return x * sigmoid(x), of any shape."""
    if is_slow(x):
        return x / (1.0 + mx.power(1 / math.e, x))
    result: mx.array = nn.silu(x) if turns.may_compile() else x * mx.sigmoid(x)
    return result


class SharedMask:
    """Which keys the rows of a forward see, in the forms that attention takes.

    Each form is made once for all layers.

    Attributes:
        mask: (L, S) or (B, 1, L, S) bool, "causal" with the last query at the last key, or None
            for no mask.
    """

    def __init__(self, mask: mx.array | str | None) -> None:
        self.mask = mask
        self._added: mx.array | None = None

    def shown(self, L: int, S: int) -> mx.array:
        """Return the mask, which must not be None, as bools."""
        if isinstance(self.mask, str):
            self.mask = mx.arange(S - L, S)[:, None] >= mx.arange(S)
        assert self.mask is not None
        return self.mask

    def added(self, groups: int, L: int, S: int) -> mx.array:
        """Return what is added to scores, float32: 0, and minus infinity where nothing is seen.

        Args:
            groups: Heads that stand below each other, so that they share a product with keys.
            L: Rows.
            S: Keys.

        Returns:
            (..., groups * L, S).
        """
        if self._added is None:
            rows = mx.where(self.shown(L, S), 0.0, -mx.inf)
            self._added = mx.concatenate([rows] * groups, axis=-2)
        return self._added


Mask = SharedMask | mx.array | str | None
"""What a `SharedMask` holds, or one."""


def attend(
    queries: mx.array,
    keys: Rows,
    values: Rows,
    *,
    scale: float,
    mask: Mask,
) -> mx.array:
    """Return grouped-query attention, as `mx.fast.scaled_dot_product_attention` does.

    Args:
        queries: (B, H, L, D).
        keys: (B, Hkv, S, D), where Hkv divides H.
        values: (B, Hkv, S, D), packed like the keys or not at all.
        scale: Multiplies the scores.
        mask: Who sees whom.

    Returns:
        (B, H, L, D).
    """
    _, H, L, D = queries.shape
    Hkv, S = keys.shape[1:3]
    shared = mask if isinstance(mask, SharedMask) else SharedMask(mask)
    if isinstance(keys, PackedRows) and isinstance(values, PackedRows) and _stay_packed(L):
        return _attend_packed(queries, keys, values, scale, shared)
    keys, values = unpacked(keys), unpacked(values)
    if not is_slow(queries):
        return mx.fast.scaled_dot_product_attention(
            queries, keys, values, scale=scale, mask=shared.mask
        )
    work = (L + 2) * S * H * D  # 2: keys and values have to be read
    if core_split.count() < 2 or Hkv == 1 or work < _WORTH_SHARING:
        return _attend(queries, keys, values, scale, shared)
    first = (Hkv + 1) // 2
    n = first * H // Hkv
    halves = core_split.together(
        lambda: _attend(queries[:, :n], keys[:, :first], values[:, :first], scale, shared),
        lambda: _attend(queries[:, n:], keys[:, first:], values[:, first:], scale, shared),
    )
    return mx.concatenate(list(halves), axis=1)


def _stay_packed(L: int) -> bool:
    return L <= _FEW and not backend.is_cpu()


def _attend(
    queries: mx.array,
    keys: mx.array,
    values: mx.array,
    scale: float,
    mask: SharedMask,
) -> mx.array:
    scores = _scores(queries, keys, scale, mask)
    weights = exp(scores - scores.max(axis=-1, keepdims=True))
    output = (weights @ values) / weights.sum(axis=-1, keepdims=True)
    return output.reshape(queries.shape)


def _attend_packed(
    queries: mx.array, keys: PackedRows, values: PackedRows, scale: float, mask: SharedMask
) -> mx.array:
    B, _, L, D = queries.shape
    Hkv, S = keys.shape[1:3]
    scores = keys.dot((queries * scale).reshape(B, Hkv, -1, D))
    if mask.mask is not None:
        scores = _hidden(scores, mask, L, S)
    weights = mx.softmax(scores, axis=-1, precise=True)
    return values.mixed(weights).reshape(queries.shape)


def _scores(queries: mx.array, keys: mx.array, scale: float, mask: SharedMask) -> mx.array:
    """Return (B, Hkv, H / Hkv * L, S) scores: heads of one group share a product."""
    B, H, L, D = queries.shape
    Hkv, S = keys.shape[1:3]
    grouped, turned = (queries * scale).reshape(B, Hkv, -1, D), keys.swapaxes(-1, -2)
    if mask.mask is None:
        return grouped @ turned
    if L <= _FEW:
        return mx.addmm(mask.added(H // Hkv, L, S), grouped, turned)
    return _hidden(grouped @ turned, mask, L, S)


def _hidden(scores: mx.array, mask: SharedMask, L: int, S: int) -> mx.array:
    """Return (B, Hkv, H / Hkv * L, S) scores with minus infinity where nothing is seen."""
    B, Hkv = scores.shape[:2]
    shown = mask.shown(L, S)
    if shown.ndim == 4:
        shown = shown[:, :, None]  # heads stand in groups here
    grouped = scores.reshape(B, Hkv, -1, L, S)
    return mx.where(shown, grouped, -mx.inf).reshape(scores.shape)
