"""Growing storage of cache rows of any kind, written in place.

Rows are stored as one or more *planes* (`device/packed.py`). Each row is quantised alone, so its
values do not depend on the rows that were written with it. A read returns quantised rows packed,
committed and staged ones. Attention can multiply packed rows, so it does not unpack the whole past.
"""

from collections.abc import Sequence

import mlx.core as mx

from mlxspec.device.packed import PlainRows, Quantization, Rows
from mlxspec.errors import CacheError

GROWTH = 256
"""Slots are added in multiples of this number, because each growth copies all rows."""


class _Planes:
    """Slots for rows of keys or values, as the planes that hold them.

    A read after a write returns the written rows, even while both are lazy. A write donates the old
    buffer, so MLX copies nothing if no other array refers to it: do not store the result of `read`.
    """

    def __init__(self, quantization: Quantization | None) -> None:
        self._kind = quantization or PlainRows()
        self._planes: list[mx.array] = []

    @property
    def arrays(self) -> list[mx.array]:
        """The arrays that hold the rows, to evaluate or to measure."""
        return self._planes

    def read(self, length: int) -> Rows:
        """Return (B, H, length, D): the first `length` slots."""
        return self._kind.read([plane[:, :, :length] for plane in self._planes])

    @property
    def num_planes(self) -> int:
        """Number of arrays that hold the rows."""
        return self._kind.num_planes

    def _reserve(self, needed: int, like: Sequence[mx.array], batch: int) -> None:
        """Grow if there are fewer than `needed` slots.

        `like` gives (..., H, L, D) rows to be stored, one array per plane, for B = `batch`.
        """
        held = self._planes[0].shape[2] if self._planes else 0
        if needed <= held:
            return
        extra = -(-(needed - held) // GROWTH) * GROWTH
        blank = [blank_rows(plane, batch, extra) for plane in like]
        if held:
            pairs = zip(self._planes, blank, strict=True)
            blank = [mx.concatenate(list(pair), axis=2) for pair in pairs]
        self._planes = blank

    def _replace(self, kept: list[mx.array]) -> None:
        """Hold only these rows, with room for the rows that come before the next such copy."""
        self._planes = kept
        # A copy even if nothing is added: a slice would keep all of the old array in memory.
        self._reserve(kept[0].shape[2] + 1, kept, kept[0].shape[0])


class RowStore(_Planes):
    """Slots for the keys or the values of one layer."""

    def __init__(self, quantization: Quantization | None) -> None:
        super().__init__(quantization)
        self._recent: list[list[mx.array]] = []
        self._shape: tuple[int, int, int, mx.Dtype] | None = None  # B, H, D, dtype

    def check(self, rows: mx.array) -> None:
        """Raise `CacheError` if `rows` differ from the stored ones: MLX would broadcast or cast.

        The first rows define batch, heads, size and dtype of all rows.
        """
        if self._shape not in (None, _shape(rows)):
            raise CacheError(f"rows (B, H, D, dtype) {_shape(rows)} do not fit {self._shape}")

    def write(self, start: int, rows: mx.array, needed: int = 0) -> None:
        """Write (B, H, L, D) `rows` into the slots from `start` on.

        Afterwards there are at least `needed` slots.
        """
        self._shape = _shape(rows)
        planes = self._kind.pack(rows)
        self._reserve(max(needed, start + rows.shape[2]), planes, rows.shape[0])
        self._put(start, planes)
        self._recent.append(planes)

    def place(self, recent: mx.array, runs: Sequence[tuple[int, int]]) -> None:
        """Copy rows written since `forget` into runs of slots.

        The source is the written arrays, not their slots: if one evaluation reads and writes the
        same buffer, MLX copies the whole buffer. `recent` are int32 indices of the rows in the
        order of writing, one per slot to fill; runs are (start, length).
        """
        parts = zip(*self._recent, strict=True)
        written = [mx.concatenate(list(planes), axis=2) for planes in parts]
        rows = [mx.take(plane, recent, axis=2) for plane in written]
        taken = 0
        for start, length in runs:
            self._put(start, [plane[:, :, taken : taken + length] for plane in rows])
            taken += length

    def drop_first(self, count: int, length: int) -> None:
        """Forget the rows in the first `count` of `length` slots; the others move to the front."""
        self._replace([plane[:, :, count:length] for plane in self._planes])

    def adopt(self, planes: Sequence[mx.array]) -> None:
        """Hold the rows of (1, H, L, D) planes, and no others; the next write adds room."""
        self._planes, self._recent, self._shape = list(planes), [], None

    def forget(self) -> None:
        """Drop the references to the rows written so far; the slots do not change."""
        self._recent.clear()

    def _put(self, start: int, planes: Sequence[mx.array]) -> None:
        for index, plane in enumerate(planes):
            self._planes[index][:, :, start : start + plane.shape[2]] = plane


class BatchRows(_Planes):
    """Slots for the keys or the values of one layer and several sequences.

    Every sequence has an index along the batch axis and is written at its own end.
    """

    def __init__(self, num_sequences: int, quantization: Quantization | None) -> None:
        super().__init__(quantization)
        self._num_sequences = num_sequences
        self._recent: list[mx.array] = []

    def write(self, slots: mx.array, rows: mx.array, needed: int) -> None:
        """Write (B, H, L, D) rows into (B, L) int32 slots, which differ between sequences.

        Afterwards there are at least `needed` slots.
        """
        planes = self._kind.pack(rows)
        self._reserve(needed, planes, self._num_sequences)
        heads = mx.arange(rows.shape[1])[None, :, None]
        sequences = mx.arange(rows.shape[0])[:, None, None]
        for plane, new in zip(self._planes, planes, strict=True):
            plane[sequences, heads, slots[:, None]] = new
        self._recent = planes

    def move(self, sequences: mx.array, rows: mx.array, slots: mx.array) -> None:
        """Copy some of the rows written last into other slots of their sequences.

        All are (n,) int32; `rows` are indices among those written last in the sequence. The source
        is that of `RowStore.place`.
        """
        heads = mx.arange(self._planes[0].shape[1])[None]
        to = sequences[:, None], heads, slots[:, None]
        for plane, recent in zip(self._planes, self._recent, strict=True):
            plane[to] = recent[sequences[:, None], heads, rows[:, None]]

    def fill(self, sequence: int, planes: Sequence[mx.array], length: int) -> None:
        """Write the first `length` rows of (1, H, n, D) planes to the start of a sequence."""
        self._reserve(length, planes, self._num_sequences)
        for plane, new in zip(self._planes, planes, strict=True):
            plane[sequence : sequence + 1, :, :length] = new[:, :, :length]

    def drop_first(self, counts: Sequence[int], length: int) -> None:
        """Forget the first `counts[i]` rows of each sequence i; the others move to the front.

        `length` is the number of slots in use afterwards, of the longest sequence.
        """
        most = self._planes[0].shape[2] - 1
        slots = mx.minimum(mx.array(list(counts))[:, None] + mx.arange(length), most)
        index = slots[:, None, :, None]
        self._replace([mx.take_along_axis(plane, index, axis=2) for plane in self._planes])

    def rows_of(self, sequence: int, start: int, end: int) -> list[mx.array]:
        """Return (1, H, end - start, D) planes: some rows of a sequence."""
        return [plane[sequence : sequence + 1, :, start:end] for plane in self._planes]

    def keep(self, sequences: Sequence[int]) -> None:
        """Keep some sequences, in this order, and release the others."""
        self._num_sequences = len(sequences)
        index = mx.array(list(sequences), mx.int32)
        kept = self._planes if sequences else []  # without sequences there are no slots either
        self._planes = [mx.take(plane, index, axis=0) for plane in kept]

    def add(self, count: int) -> None:
        """Append empty sequences."""
        self._num_sequences += count
        self._planes = [
            mx.concatenate([plane, mx.zeros((count, *plane.shape[1:]), plane.dtype)])
            for plane in self._planes
        ]

    def forget(self) -> None:
        """Drop the references to the rows written last; the slots do not change."""
        self._recent = []


def blank_rows(like: mx.array, batch: int, count: int) -> mx.array:
    """Return `count` empty slots (batch, H, count, D) for rows such as (B, H, L, D) ones."""
    return mx.zeros((batch, like.shape[1], count, like.shape[3]), like.dtype)


def _shape(rows: mx.array) -> tuple[int, int, int, mx.Dtype]:
    batch, heads, _, size = rows.shape
    return batch, heads, size, rows.dtype
