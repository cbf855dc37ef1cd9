"""Growing storage for cache rows, plain or quantised, written in place.

Rows are kept as one or more *planes*: the rows themselves, or what `mx.quantize` makes of them
(packed integers, scales, biases). Every row is quantised on its own, so a row reads the same
whichever rows were written beside it. Quantised rows are handed out as they are packed, staged
ones like committed ones: attention may multiply with them so, and need not unpack the whole past.
"""

from collections.abc import Sequence

import mlx.core as mx

from mlxspec.device.packed import PackedRows, Quantization, Rows
from mlxspec.errors import CacheError

GROWTH = 256
"""Slots are added in steps of this many rows, so that growing is rare."""


def read_planes(planes: Sequence[mx.array], length: int, packing: Quantization | None) -> Rows:
    """Return the first `length` rows that planes hold."""
    cut = tuple(plane[:, :, :length] for plane in planes)
    return cut[0] if packing is None else PackedRows(packing, cut)


class RowStore:
    """Slots for the keys or the values of one layer.

    A read after a write sees the write, also while both are lazy. Writing donates the old buffer,
    so no copy is made as long as nobody else holds it: do not keep what `read` returned.
    """

    def __init__(self, quantization: Quantization | None) -> None:
        self._quantization = quantization
        self._planes: list[mx.array] = []
        self._recent: list[list[mx.array]] = []
        self._kind: tuple[int, int, int, mx.Dtype] | None = None  # B, H, D, dtype

    def check(self, rows: mx.array) -> None:
        """Raise a `CacheError` where `rows` are not like those held: MLX would broadcast or cast.

        The first rows decide on the batch, heads, size and dtype of all.
        """
        if self._kind not in (None, _kind(rows)):
            raise CacheError(f"rows (B, H, D, dtype) {_kind(rows)} do not fit {self._kind}")

    def write(self, start: int, rows: mx.array) -> None:
        """Put (B, H, L, D) `rows` into the slots from `start` on, growing where needed."""
        self._kind = _kind(rows)
        planes = self._encode(rows)
        self._grow(start + rows.shape[2], planes)
        self._put(start, planes)
        self._recent.append(planes)

    def place(self, recent: mx.array, runs: Sequence[tuple[int, int]]) -> None:
        """Copy rows written since `forget` into runs of slots given as (start, length).

        They are taken from what was written, not out of the slots: where one evaluation reads a
        buffer and writes it, MLX copies all of it.

        Args:
            recent: Which rows, counted in the order of writing, in the order of the slots.
            runs: Slots to fill.
        """
        parts = zip(*self._recent, strict=True)
        written = [mx.concatenate(list(planes), axis=2) for planes in parts]
        rows = [mx.take(plane, recent, axis=2) for plane in written]
        taken = 0
        for start, length in runs:
            self._put(start, [plane[:, :, taken : taken + length] for plane in rows])
            taken += length

    def forget(self) -> None:
        """Let go of the rows written so far; what is in the slots stays."""
        self._recent.clear()

    def read(self, length: int) -> Rows:
        """Return (B, H, length, D): the first `length` slots."""
        return read_planes(self._planes, length, self._quantization)

    @property
    def arrays(self) -> list[mx.array]:
        """The arrays that hold the rows, to be evaluated or measured."""
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
    """Return planes with slots enough, as they are where they have them.

    Args:
        planes: (B, H, n, D) each; none before the first rows.
        needed: Slots that there have to be.
        like: (..., H, L, D) rows that go in, a plane each.
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
