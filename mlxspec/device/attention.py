"""Attention and rotations: MLX's fused kernels, or what a CPU without them computes fastest.

Where MLX has no fused attention it calls a softmax, whose exponentials are slow (`exponential.py`).
There heads that share keys share one product, and over many keys each of two cores computes half of
the heads. For rotations MLX computes cosines and sines again in every layer; on a CPU all layers of
a forward share them.

Quantised keys and values have no fused kernel. On a GPU a few rows are multiplied with them in
their packed form, which loads a quarter or less of the bytes. Otherwise they are unpacked first: on
a CPU a packed product takes n times as long for n rows (8 rows over 8,192 tokens: 38 ms packed,
7 ms unpacked), and for the many rows of a prompt unpacking costs little compared to the products.
"""

from dataclasses import dataclass

import mlx.core as mx

from mlxspec.device import backend, core_split
from mlxspec.device.exponential import exp
from mlxspec.device.packed import PackedRows, Rows, unpacked

_VECTOR_ROWS = 8  # the most rows of Metal's vector kernel of attention
_VECTOR_QUERIES = 32  # its most queries for one key head: rows, times the query heads that share it
_VECTOR_DIMS = (64, 96, 128, 256)  # its head sizes
_TILED_DIMS = (64, 80, 96, 128)  # head sizes of its kernel for many rows, which keeps no scores
_FEW_ROWS = 64  # up to this number, a mask or scores for each head cost little memory
_WORTH_SHARING = 3_000_000  # multiplications: below this, sharing between cores costs more
_VECTOR = 16  # float32 numbers in the widest vector register of a CPU


# ---- masks -------------------------------------------------------------------------------------


class SharedMask:
    """The mask that all layers of one kind share; each form of it is made once.

    `mask` is (L, S) or (B, 1, L, S) bool, "causal" with the last query at the last key, or None for
    no mask. With `by_row`, a row must round alike wherever it stands among the L rows.
    """

    def __init__(self, mask: mx.array | str | None, *, by_row: bool = False) -> None:
        self.mask = mask
        self.by_row = by_row
        self._added: mx.array | None = None

    def shown(self, L: int, S: int) -> mx.array:
        """Return the mask, which must not be None, as bools."""
        if isinstance(self.mask, str):
            self.mask = mx.arange(S - L, S)[:, None] >= mx.arange(S)
        assert self.mask is not None
        return self.mask

    def added(self, groups: int, L: int, S: int) -> mx.array:
        """Return the (..., groups * L, S) float32 mask to add to scores; -inf hides a key.

        `groups` is the number of query heads that share keys; their rows are stacked, so that they
        need one product.
        """
        if self._added is None:
            rows = mx.where(self.shown(L, S), 0.0, -mx.inf)
            self._added = mx.concatenate([rows] * groups, axis=-2)
        return self._added

    def hide(self, scores: mx.array, L: int, S: int) -> mx.array:
        """Return (B, Hkv, H / Hkv * L, S) scores with minus infinity for hidden keys."""
        B, Hkv = scores.shape[:2]
        shown = self.shown(L, S)
        if shown.ndim == 4:
            shown = shown[:, :, None]  # the axis of the heads that share keys
        grouped = scores.reshape(B, Hkv, -1, L, S)
        return mx.where(shown, grouped, -mx.inf).reshape(scores.shape)


Mask = SharedMask | mx.array | str | None
"""A `SharedMask`, or the value of its `mask`."""


# ---- attention ---------------------------------------------------------------------------------


def attend(queries: mx.array, keys: Rows, values: Rows, *, scale: float, mask: Mask) -> mx.array:
    """Return grouped-query attention (B, H, L, D), as `mx.fast.scaled_dot_product_attention` does.

    `queries` are (B, H, L, D). `keys` are (B, Hkv, S, D), where Hkv divides H, and so are `values`,
    packed like the keys or not at all. `scale` multiplies the scores.
    """
    shared = mask if isinstance(mask, SharedMask) else SharedMask(mask)
    stay_packed = queries.shape[2] <= _FEW_ROWS and not backend.is_cpu()
    if isinstance(keys, PackedRows) and isinstance(values, PackedRows) and stay_packed:
        return _attend_packed(queries, keys, values, scale, shared)
    keys, values = unpacked(keys), unpacked(values)
    if queries.dtype == mx.float32 and backend.lacks_accelerate():
        return _attend_on_cores(queries, keys, values, scale, shared)
    L, groups = queries.shape[2], queries.shape[1] // keys.shape[1]
    num_rows = L if backend.is_cpu() else rows_a_call(L, groups, queries.shape[3])
    if num_rows != L:
        return _attend_in_calls(queries, keys, values, scale, shared, num_rows)
    return mx.fast.scaled_dot_product_attention(
        queries, keys, values, scale=scale, mask=shared.mask
    )


def num_held_scores(head_dim: int, *, by_attend: bool) -> int:
    """Return how often all scores of the many rows of a prompt are in memory at once.

    `by_attend` says whether `attend` computes them, which masks a copy on an x86 CPU, or MLX.
    """
    if head_dim in _TILED_DIMS and not backend.is_cpu():
        return 0
    return 2 if by_attend and backend.lacks_accelerate() else 1


def rows_a_call(num_rows: int, groups: int, head_dim: int) -> int:
    """Return how many rows each call of MLX's attention on a Mac's GPU should have.

    For few rows Metal has a kernel that takes 32 queries a key head; more it computes with all
    scores in memory, which is slow. Two calls of fewer rows read the keys twice. Where two are not
    enough, 9 rows get the kernel for many rows. `groups` is the number of query heads that share a
    key head.
    """
    is_few = 1 < num_rows <= _VECTOR_ROWS and head_dim in _VECTOR_DIMS
    if not is_few or num_rows * groups <= _VECTOR_QUERIES:
        return num_rows
    fitting = _VECTOR_QUERIES // groups
    if 2 * fitting >= num_rows:
        return fitting
    # For heads of 256 MLX finds its kernel for many rows slower than scores in memory.
    return _VECTOR_ROWS + 1 if head_dim < max(_VECTOR_DIMS) else num_rows


def _attend_in_calls(
    queries: mx.array,
    keys: mx.array,
    values: mx.array,
    scale: float,
    mask: SharedMask,
    num_rows: int,
) -> mx.array:
    L, S = queries.shape[2], keys.shape[2]
    shown = None if mask.mask is None else mask.shown(L, S)

    def part(rows: slice | mx.array) -> mx.array:
        seen = None if shown is None else shown[..., rows, :]
        return mx.fast.scaled_dot_product_attention(
            queries[:, :, rows], keys, values, scale=scale, mask=seen
        )

    if num_rows > L:  # repeats of the last row: a row that sees no key would not be finite
        return part(mx.minimum(mx.arange(num_rows), L - 1))[:, :, :L]
    return mx.concatenate([part(slice(i, i + num_rows)) for i in range(0, L, num_rows)], axis=2)


def _attend_packed(
    queries: mx.array, keys: PackedRows, values: PackedRows, scale: float, mask: SharedMask
) -> mx.array:
    B, _, L, D = queries.shape
    Hkv, S = keys.shape[1:3]
    scores = keys.product((queries * scale).reshape(B, Hkv, -1, D), transpose=True)
    if mask.mask is not None:
        scores = mask.hide(scores, L, S)
    weights = mx.softmax(scores, axis=-1, precise=True)
    return values.product(weights, transpose=False).reshape(queries.shape)


def _attend_on_cores(
    queries: mx.array, keys: mx.array, values: mx.array, scale: float, mask: SharedMask
) -> mx.array:
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
    if mask.by_row:
        return _attend_by_head(queries, keys, values, scale, mask)
    scores = _scores(queries, keys, scale, mask)
    weights = exp(scores - scores.max(axis=-1, keepdims=True))
    output = (weights @ values) / weights.sum(axis=-1, keepdims=True)
    return output.reshape(queries.shape)


def _attend_by_head(
    queries: mx.array, keys: mx.array, values: mx.array, scale: float, mask: SharedMask
) -> mx.array:
    """Attend with one product a head.

    If heads shared a product, it would have more rows, and BLAS would compute them in blocks: the
    place of a row in its block would decide how it is rounded.
    """
    B, _, L, D = queries.shape
    Hkv, S = keys.shape[1:3]
    grouped = (queries * scale).reshape(B, Hkv, -1, L, D)
    scores = grouped @ keys[:, :, None].swapaxes(-1, -2)
    if mask.mask is not None:
        scores = scores + mask.added(1, L, S)
    weights = exp(scores - scores.max(axis=-1, keepdims=True))
    output = (weights @ values[:, :, None]) / weights.sum(axis=-1, keepdims=True)
    return output.reshape(queries.shape)


def _scores(queries: mx.array, keys: mx.array, scale: float, mask: SharedMask) -> mx.array:
    """Return (B, Hkv, H / Hkv * L, S) scores: heads of one group share a product."""
    B, H, L, D = queries.shape
    Hkv, S = keys.shape[1:3]
    grouped, transposed = (queries * scale).reshape(B, Hkv, -1, D), keys.swapaxes(-1, -2)
    if mask.mask is None:
        return grouped @ transposed
    if L <= _FEW_ROWS:
        return mx.addmm(mask.added(H // Hkv, L, S), grouped, transposed)
    return mask.hide(grouped @ transposed, L, S)


# ---- rotations ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Angles:
    """The rotations of L rows, computed once for all layers of a forward.

    Both arrays are (L, head_dim) float32, or (B, 1, L, head_dim) if each sequence of a batch has
    its own positions. Both halves of `cosines` are equal; the first half of `sines` is negated.
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


Positions = int | mx.array | Angles
"""Positions of the L rows of a forward: that of the first of contiguous rows, (L,) int32 positions,
(B, L) if sequences differ, or the result of `prepared_positions`."""


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

    `positions` is the position of the first of `num_rows` rows, or those of all rows. See
    `Angles.of` for the others; the frequencies are padded to `in_whole_vectors`.
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

    def rotated(x: mx.array) -> mx.array:
        if isinstance(positions, Angles):
            return positions.rotate(x)
        if isinstance(positions, int):
            return _rope(x, positions, wavelengths)
        B, H, L, D = x.shape
        # `mx.fast.rope` has one offset per entry of the batch axis, so rows move to that axis.
        offsets = mx.broadcast_to(positions, (B, L)).reshape(-1)
        rows = _rope(x.swapaxes(1, 2).reshape(B * L, H, 1, D), offsets, wavelengths)
        return rows.reshape(B, L, H, D).swapaxes(1, 2)

    return core_split.together(lambda: rotated(queries), lambda: rotated(keys))


def _rope(x: mx.array, offset: int | mx.array, wavelengths: mx.array) -> mx.array:
    return mx.fast.rope(
        x, x.shape[-1], traditional=False, base=None, scale=1.0, offset=offset, freqs=wavelengths
    )
