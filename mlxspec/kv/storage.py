"""Growing storage of cache rows, plain or quantised, written in place.

Rows are stored as one or more *planes*: the rows themselves, or the output of `mx.quantize`
(packed integers, scales, biases). Each row is quantised alone, so its values do not depend on the
rows that were written with it. A read returns quantised rows packed, committed and staged ones.
Attention can multiply packed rows, so it does not unpack the whole past.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import mlx.core as mx

from mlxspec.errors import CacheError, UnsupportedOperationError

GROWTH = 256
"""Slots are added in multiples of this number, since each growth copies all rows."""

_GROUP_SIZES = (64, 32)


@dataclass(frozen=True)
class Quantization:
    """The packing of rows: `bits` per value, one scale and one bias per group of `group_size`."""

    bits: int
    group_size: int

    @staticmethod
    def for_head_dim(bits: int, head_dim: int) -> "Quantization":
        """Return the packing for rows of `head_dim` values.

        Raises:
            ValueError: `bits` is not 4 or 8.
            UnsupportedOperationError: No group size divides `head_dim`.
        """
        if bits not in (4, 8):
            raise ValueError(f"keys and values can be stored in 4 or 8 bits, not {bits}")
        for group_size in _GROUP_SIZES:
            if head_dim % group_size == 0:
                return Quantization(bits, group_size)
        raise UnsupportedOperationError(
            f"quantised keys and values need a head size divisible by 32; this model has "
            f"{head_dim}: leave the KV bits unset"
        )

    def pack(self, rows: mx.array) -> list[mx.array]:
        """Return (..., D) rows as packed integers, scales and biases."""
        return list(mx.quantize(rows, group_size=self.group_size, bits=self.bits))

    def unpack(self, packed: mx.array, scales: mx.array, biases: mx.array) -> mx.array:
        """Return the rows (..., D) that `pack` packed, bit for bit as `mx.dequantize` does.

        On a CPU `mx.dequantize` unpacks value by value, so there operations on whole arrays
        replace it.
        """
        if mx.default_device().type != mx.DeviceType.cpu:
            return mx.dequantize(packed, scales, biases, group_size=self.group_size, bits=self.bits)
        codes = self._codes(packed).astype(scales.dtype)
        if scales.shape[-1] == 1:
            return codes * scales + biases
        groups = codes.reshape(*scales.shape, self.group_size)
        return (groups * scales[..., None] + biases[..., None]).reshape(codes.shape)

    def _codes(self, packed: mx.array) -> mx.array:
        """Return the (..., D) uint8 integers in (..., D * bits / 32) uint32 words."""
        octets = packed.view(mx.uint8)
        if self.bits == 8:
            return octets
        pairs = octets.astype(mx.uint16)  # 0x00hl becomes 0x0h0l: the bytes l and h
        return ((pairs | (pairs << 4)) & 0x0F0F).view(mx.uint8)


@dataclass(frozen=True)
class PackedRows:
    """Rows (B, H, n, D) in packed form.

    Attributes:
        packing: The packing.
        planes: Packed integers, scales and biases of the n rows.
    """

    packing: Quantization
    planes: tuple[mx.array, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """(B, H, n, D)."""
        words = self.planes[0].shape
        return *words[:-1], words[-1] * 32 // self.packing.bits

    def unpacked(self) -> mx.array:
        """Return the rows (B, H, n, D)."""
        return self.packing.unpack(*self.planes)

    def dot(self, x: mx.array) -> mx.array:
        """Return the (B, H, L, n) dot products of (B, H, L, D) vectors with every row."""
        return self._product(x, is_dot=True)

    def mixed(self, weights: mx.array) -> mx.array:
        """Return the (B, H, L, D) sums of the rows, weighted by (B, H, L, n) weights."""
        return self._product(weights, is_dot=False)

    def _product(self, x: mx.array, *, is_dot: bool) -> mx.array:
        packed, scales, biases = self.planes
        bits, group_size = self.packing.bits, self.packing.group_size
        return mx.quantized_matmul(
            x, packed, scales, biases, transpose=is_dot, group_size=group_size, bits=bits
        )


Rows = mx.array | PackedRows
"""Rows (B, H, n, D), packed or not."""


def read_planes(planes: Sequence[mx.array], length: int, packing: Quantization | None) -> Rows:
    """Return the first `length` rows of planes."""
    cut = tuple(plane[:, :, :length] for plane in planes)
    return cut[0] if packing is None else PackedRows(packing, cut)


def unpacked(rows: Rows) -> mx.array:
    """Return rows (B, H, n, D) as an array."""
    return rows.unpacked() if isinstance(rows, PackedRows) else rows


class RowStore:
    """Slots for the keys or the values of one layer.

    A read after a write returns the written rows, also while both are lazy. A write donates the old
    buffer, so MLX copies nothing if no other array refers to it: do not store the result of `read`.
    """

    def __init__(self, quantization: Quantization | None) -> None:
        self._quantization = quantization
        self._planes: list[mx.array] = []
        self._recent: list[list[mx.array]] = []
        self._kind: tuple[int, int, int, mx.Dtype] | None = None  # B, H, D, dtype

    def check(self, rows: mx.array) -> None:
        """Raise `CacheError` if `rows` differ from the stored ones: MLX would broadcast or cast.

        The first rows define batch, heads, size and dtype of all rows.
        """
        if self._kind not in (None, _kind(rows)):
            raise CacheError(f"rows (B, H, D, dtype) {_kind(rows)} do not fit {self._kind}")

    def write(self, start: int, rows: mx.array) -> None:
        """Write (B, H, L, D) `rows` into the slots from `start` on; add slots where needed."""
        self._kind = _kind(rows)
        planes = self._encode(rows)
        self._grow(start + rows.shape[2], planes)
        self._put(start, planes)
        self._recent.append(planes)

    def place(self, recent: mx.array, runs: Sequence[tuple[int, int]]) -> None:
        """Copy rows written since `forget` into runs of slots.

        The source is the written arrays, not their slots: where one evaluation reads and writes the
        same buffer, MLX copies the whole buffer.

        Args:
            recent: int32 indices of the rows in the order of writing, one per slot to fill.
            runs: Slots to fill, as (start, length).
        """
        parts = zip(*self._recent, strict=True)
        written = [mx.concatenate(list(planes), axis=2) for planes in parts]
        rows = [mx.take(plane, recent, axis=2) for plane in written]
        taken = 0
        for start, length in runs:
            self._put(start, [plane[:, :, taken : taken + length] for plane in rows])
            taken += length

    def forget(self) -> None:
        """Drop the references to the rows written so far; the slots do not change."""
        self._recent.clear()

    def read(self, length: int) -> Rows:
        """Return the rows of the first `length` slots, (B, H, length, D)."""
        return read_planes(self._planes, length, self._quantization)

    @property
    def arrays(self) -> list[mx.array]:
        """The arrays of the rows, to evaluate or to measure."""
        return self._planes

    def _encode(self, rows: mx.array) -> list[mx.array]:
        if self._quantization is None:
            return [rows]
        return self._quantization.pack(rows)

    def _put(self, start: int, planes: Sequence[mx.array]) -> None:
        for index, plane in enumerate(planes):
            self._planes[index][:, :, start : start + plane.shape[2]] = plane

    def _grow(self, needed: int, like: Sequence[mx.array]) -> None:
        self._planes = grown(self._planes, needed, like, like[0].shape[0])


def grown(
    planes: list[mx.array], needed: int, like: Sequence[mx.array], batch: int
) -> list[mx.array]:
    """Return planes with at least `needed` slots; the same planes where they have them.

    Args:
        planes: (B, H, n, D) each; empty before the first rows.
        needed: Number of slots.
        like: (..., H, L, D) rows to store, one array per plane.
        batch: B.
    """
    held = planes[0].shape[2] if planes else 0
    if needed <= held:
        return planes
    extra = -(-(needed - held) // GROWTH) * GROWTH
    blank = [mx.zeros((batch, p.shape[1], extra, p.shape[3]), p.dtype) for p in like]
    if not planes:
        return blank
    return [mx.concatenate(list(pair), axis=2) for pair in zip(planes, blank, strict=True)]


def _kind(rows: mx.array) -> tuple[int, int, int, mx.Dtype]:
    batch, heads, _, size = rows.shape
    return batch, heads, size, rows.dtype
