"""Growing storage for cache rows, plain or quantised, written in place.

Rows are kept as one or more *planes*: the rows themselves, or what `mx.quantize` makes of them
(packed integers, scales, biases). Every row is quantised on its own, so a row reads the same
whichever rows were written beside it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import mlx.core as mx

from mlxspec.errors import UnsupportedOperationError

GROWTH = 256
"""Slots are added in steps of this many rows, so that growing is rare."""

_GROUP_SIZES = (64, 32)


@dataclass(frozen=True)
class Quantization:
    """How rows are packed: `bits` per value, in groups of `group_size` with one scale each."""

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
            raise ValueError(f"keys and values can be kept in 4 or 8 bits, not {bits}")
        for group_size in _GROUP_SIZES:
            if head_dim % group_size == 0:
                return Quantization(bits, group_size)
        raise UnsupportedOperationError(
            f"quantised keys and values need a head size divisible by 32; this model has "
            f"{head_dim}: leave the KV bits unset"
        )


class RowStore:
    """Slots for the keys or the values of one layer.

    A read after a write sees the write, also while both are lazy. Writing donates the old buffer,
    so no copy is made as long as nobody else holds it: do not keep what `read` returned.
    """

    def __init__(self, quantization: Quantization | None) -> None:
        self._quantization = quantization
        self._planes: list[mx.array] = []

    def write(self, start: int, rows: mx.array) -> None:
        """Put (B, H, L, D) `rows` into the slots from `start` on, growing where needed."""
        planes = self._encode(rows)
        self._grow(start + rows.shape[2], planes)
        self._put(start, planes)

    def move(self, sources: mx.array, runs: Sequence[tuple[int, int]]) -> None:
        """Copy the `sources` slots, in order, into runs of slots given as (start, length).

        All sources are read before anything is written, so the two may overlap.
        """
        rows = [mx.take(plane, sources, axis=2) for plane in self._planes]
        taken = 0
        for start, length in runs:
            self._put(start, [plane[:, :, taken : taken + length] for plane in rows])
            taken += length

    def read(self, length: int) -> mx.array:
        """Return (B, H, length, D): the first `length` slots."""
        planes = [plane[:, :, :length] for plane in self._planes]
        if self._quantization is None:
            return planes[0]
        return mx.dequantize(
            *planes, group_size=self._quantization.group_size, bits=self._quantization.bits
        )

    @property
    def arrays(self) -> list[mx.array]:
        """The arrays that hold the rows, to be evaluated or measured."""
        return self._planes

    def _encode(self, rows: mx.array) -> list[mx.array]:
        if self._quantization is None:
            return [rows]
        packing = self._quantization
        return list(mx.quantize(rows, group_size=packing.group_size, bits=packing.bits))

    def _put(self, start: int, planes: Sequence[mx.array]) -> None:
        for index, plane in enumerate(planes):
            self._planes[index][:, :, start : start + plane.shape[2]] = plane

    def _grow(self, needed: int, like: Sequence[mx.array]) -> None:
        held = self._planes[0].shape[2] if self._planes else 0
        if needed <= held:
            return
        extra = -(-(needed - held) // GROWTH) * GROWTH
        blank = [mx.zeros((*p.shape[:2], extra, p.shape[3]), p.dtype) for p in like]
        if not self._planes:
            self._planes = blank
        else:
            pairs = zip(self._planes, blank, strict=True)
            self._planes = [mx.concatenate(pair, axis=2) for pair in pairs]
