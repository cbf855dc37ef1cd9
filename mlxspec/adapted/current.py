"""The forward in progress: what the changed modules of an adapted model look up while it runs."""

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
"""A kind of rotation; a position and a number of rows, or an array's identity and sequences."""


class AnyCache(Protocol):
    """What an adapted model needs of a cache: rows to attend to, and recurrent states."""

    states: States

    def stage(self, layer: int, keys: mx.array, values: mx.array) -> tuple[Rows, Rows]:
        """Add rows of one layer; return all rows."""

    def visible(self, layer: int, mask: Mask) -> Mask:
        """Return a mask over the rows that a layer holds, of one over all rows."""


@dataclass
class Part:
    """Consecutive layers that run without the others.

    Attributes:
        layers: Their indices; all other layers return what enters them.
        x: (B, L, D) states that enter the first of them.
        result: (B, L, D) states after the last of them.
    """

    layers: range
    x: mx.array
    result: mx.array | None = None


class Current(threading.local):
    """The forward in progress of one adapted model, in one thread.

    Another thread may call the model in the meantime, as mlx-lm does: there is no forward of ours.

    Attributes:
        cache: Where its rows and states go.
        offset: Position of the first row, where rows are contiguous; else of the root.
        counted: Rows in front of those that were staged last: fewer than `offset` where a cache has
            evicted some; None before a layer has staged its rows.
        positions: (L,) or (B, L) int32 position of each row; None where rows are contiguous.
        folded: (B, L) of a forward whose rows run as B*L sequences of one row; else None.
        masks: The attention mask of each layer window.
        rows: The rows of the level that a recurrent layer computes now; None for all rows.
        capture: Layers whose entering states are kept.
        entering: Those states, (B, L, D) by layer.
        final: (B, L, D) output of the backbone, once it is known.
        replay: A result that the backbone returns instead of running.
        part: The layers that run; None for all.
        packing: How the rows are packed that attention gets; None where it gets plain ones.
        angles: Rotations that several layers share, and what they were computed of.
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
        """Whether the model is called for us: it runs a forward, or its head alone."""
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
        """Let one forward use these; forget them afterwards."""
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
