"""Storage for the keys or the values of one layer and several sequences, written in place.

As in `mlxspec.kv.storage`, rows are kept as planes: the rows themselves, or what quantising makes
of them. Every sequence has a place of its own along the batch axis and is written at its own end.
"""

from collections.abc import Sequence

import mlx.core as mx

from mlxspec.device.packed import Quantization, Rows
from mlxspec.kv.storage import grown, read_planes


class BatchRows:
    """Slots for the rows of several sequences in one layer.

    A read after a write sees the write, also while both are lazy. Writing donates the old buffer,
    so no copy is made as long as nobody else holds it: do not keep what `read` returned.
    """

    def __init__(self, num_places: int, quantization: Quantization | None) -> None:
        self._num_places = num_places
        self._quantization = quantization
        self._planes: list[mx.array] = []
        self._recent: list[mx.array] = []

    @property
    def num_planes(self) -> int:
        """Arrays that hold the rows: 1, or 3 where they are quantised."""
        return 1 if self._quantization is None else 3

    @property
    def arrays(self) -> list[mx.array]:
        """The arrays that hold the rows, to be evaluated or measured."""
        return self._planes

    def write(self, slots: mx.array, rows: mx.array, needed: int) -> None:
        """Put rows into slots of their own in every place.

        Args:
            slots: (B, L) int32.
            rows: (B, H, L, D).
            needed: Slots that there have to be.
        """
        planes = [rows] if self._quantization is None else self._quantization.pack(rows)
        self._grow(needed, planes)
        heads = mx.arange(rows.shape[1])[None, :, None]
        places = mx.arange(rows.shape[0])[:, None, None]
        for plane, new in zip(self._planes, planes, strict=True):
            plane[places, heads, slots[:, None]] = new
        self._recent = planes

    def move(self, places: mx.array, rows: mx.array, slots: mx.array) -> None:
        """Copy some of the rows written last into other slots of their places.

        They are taken from what was written, not out of the slots: where one evaluation reads a
        buffer and writes it, MLX copies all of it.

        Args:
            places: (n,) int32.
            rows: (n,) int32 index among those written last in the place.
            slots: (n,) int32.
        """
        heads = mx.arange(self._planes[0].shape[1])[None]
        to = places[:, None], heads, slots[:, None]
        for plane, recent in zip(self._planes, self._recent, strict=True):
            plane[to] = recent[places[:, None], heads, rows[:, None]]

    def fill(self, place: int, planes: Sequence[mx.array], length: int) -> None:
        """Put the first `length` rows of (1, H, n, D) planes into the first slots of a place."""
        self._grow(length, planes)
        for plane, new in zip(self._planes, planes, strict=True):
            plane[place : place + 1, :, :length] = new[:, :, :length]

    def keep(self, places: Sequence[int]) -> None:
        """Keep some places, in the order given, and release the others."""
        self._num_places = len(places)
        index = mx.array(list(places), mx.int32)
        self._planes = [mx.take(plane, index, axis=0) for plane in self._planes]

    def forget(self) -> None:
        """Let go of the rows written last; what is in the slots stays."""
        self._recent = []

    def read(self, length: int) -> Rows:
        """Return (B, H, length, D): the first `length` slots of every place."""
        return read_planes(self._planes, length, self._quantization)

    def _grow(self, needed: int, like: Sequence[mx.array]) -> None:
        self._planes = grown(self._planes, needed, like, self._num_places)
