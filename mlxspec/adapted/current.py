"""The forward in progress: the state that the overridden modules of an adapted model read."""

import threading
from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

import mlx.core as mx

from mlxspec.device.cpu.attention import Angles
from mlxspec.device.packed import Quantization, Rows
from mlxspec.kv.masks import Masks
from mlxspec.kv.states import Row, States
from mlxspec.kv.windows import Mask

AnglesKey = tuple[Hashable, int, int]
"""A kind of rotation; then a position and a number of rows, or an array's id and sequences."""


class AnyCache(Protocol):
    """A cache for an adapted model: rows to attend to, and recurrent states."""

    states: States

    def stage(self, layer: int, keys: mx.array, values: mx.array) -> tuple[Rows, Rows]:
        """Add rows of one layer; return all rows."""

    def visible(self, layer: int, mask: Mask) -> Mask:
        """Convert a mask over all rows to one over the rows that a layer holds."""


@dataclass
class Part:
    """Consecutive layers that run without the others.

    Attributes:
        layers: Their indices; all other layers return their input.
        x: (B, L, D) states that enter the first of them.
        result: (B, L, D) states after the last of them.
    """

    layers: range
    x: mx.array
    result: mx.array | None = None


class Current(threading.local):
    """The forward in progress of one adapted model, in one thread.

    Another thread may call the model at the same time, as mlx-lm does; there, no forward of ours is
    in progress.

    Attributes:
        offset: Position of the first row if rows are contiguous; else of the root.
        counted: Number of rows before those that were staged last. It is less than `offset` if a
            cache has evicted rows; None before a layer has staged its rows.
        positions: (L,) or (B, L) int32 position of each row; None if rows are contiguous.
        folded: (B, L) of a forward whose rows run as B*L sequences of one row; else None.
        masks: The attention mask of each layer window.
        rows: The rows of the level that a recurrent layer computes now; None for all rows.
        capture: Layers whose entering states are kept.
        entering: Those states, (B, L, D) by layer.
        final: (B, L, D) output of the backbone, once it is known.
        replay: A result that the backbone returns instead of running.
        part: The layers that run; None for all.
        packing: How the rows that attention gets are packed; None if they are plain.
        angles: Rotations that several layers share, and the positions they were computed from.
    """

    cache: AnyCache

    def __init__(self) -> None:
        self.is_running = False
        self.offset = 0
        self.counted: int | None = None
        self.positions: mx.array | None = None
        self.folded: tuple[int, int] | None = None
        self.masks: Masks = {}
        self.rows: Sequence[Row] | None = None
        self.capture: frozenset[int] = frozenset()
        self.entering: dict[int, mx.array] = {}
        self.final: mx.array | None = None
        self.replay: mx.array | None = None
        self.part: Part | None = None
        self.packing: Quantization | None = None
        self.angles: dict[AnglesKey, tuple[Angles, int | mx.array]] = {}

    @property
    def is_ours(self) -> bool:
        """Whether the call is ours: it runs a forward, or only the head."""
        return self.is_running or self.replay is not None

    def each(self, B: int, L: int) -> mx.array:
        """Return the position (B, L) of each row that a module gets, int32."""
        assert self.positions is not None
        shape = (B, L) if self.folded is None or self.rows is not None else self.folded
        return mx.broadcast_to(self.positions, shape).reshape(B, L)

    @contextmanager
    def run(
        self,
        cache: AnyCache,
        positions: int | mx.array,
        offset: int,
        masks: Masks,
        capture: Sequence[int] = (),
        part: Part | None = None,
        folded: tuple[int, int] | None = None,
    ) -> Iterator[None]:
        """Set these for one forward, and clear them afterwards."""
        self.cache, self.offset, self.masks = cache, offset, masks
        self.positions = None if isinstance(positions, int) else positions
        self.capture, self.entering, self.final = frozenset(capture), {}, None
        self.is_running, self.part, self.folded, self.counted = True, part, folded, None
        try:
            yield
        finally:
            self.is_running, self.positions, self.masks = False, None, {}
            self.entering, self.final, self.part, self.folded = {}, None, None, None
            self.packing = None
            self.angles.clear()
