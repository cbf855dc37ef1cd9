"""The forward in progress: the state that the overridden modules of an adapted model read."""

import threading
from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import MappingProxyType

import mlx.core as mx

from mlxspec.device.attention import Angles
from mlxspec.device.packed import Quantization
from mlxspec.kv.batch import BatchCache
from mlxspec.kv.cache import Cache
from mlxspec.kv.masks import Masks
from mlxspec.kv.states import Row

# A kind of rotation; then a position and a number of rows, or an array's id and sequences.
AnglesKey = tuple[Hashable, int, int]


AnyCache = Cache | BatchCache


@dataclass
class Part:
    """Consecutive layers that run without the others."""

    layers: range  # their indices; all other layers return their input
    x: mx.array  # (B, L, D) states that enter the first of them
    result: mx.array | None = None  # (B, L, D) states after the last of them


@dataclass(frozen=True)
class Forward:
    """What one forward of an adapted model reads."""

    cache: AnyCache
    positions: int | mx.array  # as in `mlxspec.models.Model.hidden_states`
    masks: Masks  # the attention mask of each layer window
    capture: Sequence[int] = ()  # layers whose entering states are kept
    part: Part | None = None  # the layers that run; None for all
    folded: tuple[int, int] | None = None  # (B, L) if rows run as B*L sequences of one row
    packing: Quantization | None = None  # of the rows that attention gets; None if they are plain


class Current(threading.local):
    """The forward in progress of one adapted model, in one thread; idle, it has these values."""

    is_running = False
    cache: AnyCache
    offset = 0  # position of the first row if rows are contiguous; else of the root
    # Rows before those staged last, less than `offset` if a cache has evicted rows; None at first.
    counted: int | None = None
    positions: mx.array | None = None  # (L,) or (B, L) int32 of each row; None if contiguous
    folded: tuple[int, int] | None = None
    masks: Masks = MappingProxyType({})
    rows: Sequence[Row] | None = None  # of the level that a recurrent layer computes; None for all
    capture: Sequence[int] = ()
    entering: dict[int, mx.array]  # those states, (B, L, D) by layer
    final: mx.array | None = None  # (B, L, D) output of the backbone, once it is known
    replay: mx.array | None = None  # a result that the backbone returns instead of running
    part: Part | None = None
    packing: Quantization | None = None
    # Rotations that several layers share, and the positions they were computed from.
    angles: dict[AnglesKey, tuple[Angles, int | mx.array]]

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
    def run(self, forward: Forward) -> Iterator[None]:
        vars(self).update(vars(forward), is_running=True, entering={}, angles={})
        if isinstance(forward.positions, int):
            self.offset, self.positions = forward.positions, None
        else:
            self.offset = getattr(forward.cache, "offset", 0)
        try:
            yield
        finally:
            vars(self).clear()  # those of this thread: it is idle again
