"""The caches that a model of mlx-lm sees: each returns rows, masks and states of ours.

The leaves have the names that a model's code asks for and delegate to the forward in progress, so
it runs over a draft tree.
"""

from collections.abc import Sequence
from typing import Any

import mlx.core as mx
from mlx_lm.models.cache import (
    ArraysCache,
    CacheList,
    ChunkedKVCache,
    ConcatenateKVCache,
    KVCache,
    RotatingKVCache,
)

from mlxspec.adapted.current import Current
from mlxspec.device.packed import PackedRows, Quantization, unpacked
from mlxspec.errors import UnsupportedModelError, UnsupportedOperationError
from mlxspec.kv.windows import Windows

_ROW_CACHES = (KVCache, RotatingKVCache, ConcatenateKVCache, ChunkedKVCache)


class RowsLeaf:
    """Keys and values of one layer, which our cache keeps as `layer`."""

    start_position = 0  # of a chunked cache; rows at the front are never removed

    def __init__(self, current: Current, layer: int, window: int | None) -> None:
        self._current = current
        self._layer = layer
        self.window = window  # rows that the model's own cache would keep; None for all
        self.longest = window or 0  # the longest window of its masks so far
        self._rows: tuple[Any, Any] | None = None

    @property
    def offset(self) -> int | mx.array:
        """Position of the first row of the forward, or of the root of a tree.

        If every row runs as a separate sequence, it is (B*L,) int32, one position each.
        """
        if self._current.folded is None or self._current.positions is None:
            return self._current.offset
        if self._current.rows is not None:
            return self._current.positions.reshape(-1)
        return mx.broadcast_to(self._current.positions, self._current.folded).reshape(-1)

    @property
    def bits(self) -> int:
        """Bits of a packed number, else no attribute: mlx-lm's attention checks for it."""
        return self._packing("bits").bits

    @property
    def group_size(self) -> int:
        """Numbers with one scale, as `bits`."""
        return self._packing("group_size").group_size

    def _packing(self, name: str) -> Quantization:
        if self._current.packing is None:
            raise AttributeError(name)
        return self._current.packing

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[Any, Any]:
        """Stage rows (B, Hkv, L, D); return all rows that attention may read, packed or plain."""
        folded = self._current.folded
        if folded is not None:
            keys, values = _unfold(keys, folded), _unfold(values, folded)
        all_keys, all_values = self._current.cache.stage(self._layer, keys, values)
        self._current.counted = all_keys.shape[2] - keys.shape[2]
        if self._current.packing is not None:
            assert isinstance(all_keys, PackedRows)
            assert isinstance(all_values, PackedRows)
            self._rows = all_keys.planes, all_values.planes
            return self._rows
        # Not packed: a model may read its keys, and attention with sinks cannot use packed ones.
        rows = unpacked(all_keys), unpacked(all_values)
        if folded is not None:
            rows = mx.repeat(rows[0], folded[1], axis=0), mx.repeat(rows[1], folded[1], axis=0)
        self._rows = rows
        return self._rows

    def keys_and_values(self) -> tuple[Any, Any]:
        assert self._rows is not None, "no layer has staged these rows yet"
        return self._rows

    @property
    def state(self) -> tuple[Any, Any]:
        return self.keys_and_values()

    def make_mask(
        self, N: int, window_size: int | None = None, return_array: bool = False, **_: Any
    ) -> mx.array | str | None:
        """Return the mask of the forward's `N` rows for a layer with this window."""
        window = window_size or self.window
        self.longest = max(self.longest, window or 0)
        is_text = self._current.positions is None and N > 1
        if self.window is not None and window is not None and not is_text:
            # Token by token, a row sees only what the model's own cache holds, even if its mask
            # allows more. Only a text that is read in one forward is limited by the mask alone.
            window = min(window, self.window)
        if window not in self._current.masks:
            raise UnsupportedOperationError(f"no mask was made for a window of {window} tokens")
        mask = self._current.cache.visible(self._layer, self._current.masks[window])
        if (folded := self._current.folded) is not None and mask is not None:
            assert isinstance(mask, mx.array), "a text never runs folded"
            every = mx.broadcast_to(mask, (folded[0], 1, folded[1], mask.shape[-1]))
            return every.reshape(-1, 1, 1, mask.shape[-1])
        # As in mlx-lm: None, or a mask with all axes, because a model may index its rows.
        if N == 1:
            return mask[None, None] if isinstance(mask, mx.array) and mask.ndim == 2 else mask
        if return_array and not isinstance(mask, mx.array):
            end = self._current.offset + N
            mask = mx.arange(self._current.offset, end)[:, None] >= mx.arange(end)
        return mask

    @property
    def keys(self) -> Any:
        """The keys that the last `update_and_fetch` returned."""
        return self.keys_and_values()[0]

    @keys.setter
    def keys(self, value: Any) -> None:
        """Do nothing: models set the keys only to order the evaluation of other arrays."""

    @property
    def values(self) -> Any:
        """The values that the last `update_and_fetch` returned."""
        return self.keys_and_values()[1]

    @values.setter
    def values(self, value: Any) -> None:
        """Do nothing, as for the keys."""

    def maybe_trim_front(self) -> None:
        """Do nothing: the mask hides what a chunk does not see."""

    def release(self) -> None:
        """Drop the references to the rows of a forward, so that the next one can write in place."""
        self._rows = None


class StateLeaf(ArraysCache):
    """The recurrent state of one layer, `size` arrays that our cache keeps as `leaf`.

    It derives from `ArraysCache` only because some layers accept no other kind of cache.
    """

    lengths = None
    left_padding = None

    def __init__(self, current: Current, leaf: int, size: int) -> None:
        self._current, self._leaf, self._size = current, leaf, size

    def __getitem__(self, index: int) -> mx.array | None:
        if not 0 <= index < self._size:  # ends an iteration over all arrays
            raise IndexError(f"this state has {self._size} arrays, and no array {index}")
        return self._current.cache.states.read(self._leaf, index, self._current.rows)

    def __setitem__(self, index: int, value: mx.array) -> None:
        self._current.cache.states.write(self._leaf, index, value, self._current.rows)

    @property
    def offset(self) -> int:
        return self._current.offset

    def make_mask(self, N: int, **_: Any) -> None:
        """Return no mask: no row of a forward is padding."""

    def advance(self, N: int) -> None:
        """Do nothing: only padded batches count rows."""

    def empty(self) -> bool:
        """Return whether the text has no state yet."""
        return self[0] is None


class LeafList:
    """Several caches of one layer."""

    def __init__(self, leaves: Sequence[Any]) -> None:
        self.caches = tuple(leaves)

    def __getitem__(self, index: int) -> Any:
        return self.caches[index]

    @property
    def offset(self) -> int | mx.array:
        offset: int | mx.array = self.caches[0].offset
        return offset


class LeafPlan:
    """Makes a leaf for each cache of a model and numbers its rows and states."""

    def __init__(self, current: Current) -> None:
        self._current = current
        self.num_states = 0
        self.row_leaves: list[RowsLeaf] = []

    @property
    def num_rows(self) -> int:
        return len(self.row_leaves)

    @property
    def row_windows(self) -> Windows:
        """The rows that each leaf must hold: those of the longest mask of its window."""
        longest: dict[int, int] = {}
        for leaf in self.row_leaves:
            if leaf.window is not None:
                longest[leaf.window] = max(leaf.longest, longest.get(leaf.window, 0))
        windows = [leaf.window for leaf in self.row_leaves]
        return tuple(None if window is None else longest[window] for window in windows)

    def leaf(self, cache: Any) -> Any:
        """Return a leaf that replaces a cache of mlx-lm."""
        if isinstance(cache, CacheList):
            return LeafList([self.leaf(part) for part in cache.caches])
        if isinstance(cache, ArraysCache):
            self.num_states += 1
            return StateLeaf(self._current, self.num_states - 1, len(cache.cache))
        if type(cache) in _ROW_CACHES:
            window = cache.max_size if isinstance(cache, RotatingKVCache) else None
            self.row_leaves.append(RowsLeaf(self._current, self.num_rows, window))
            return self.row_leaves[-1]
        raise UnsupportedModelError(f"a cache of the type {type(cache).__name__} is not known")


def _unfold(rows: mx.array, folded: tuple[int, int]) -> mx.array:
    """Return (B, H, L, D) of the (B*L, H, 1, D) rows of a folded forward."""
    return rows.reshape(*folded, rows.shape[1], rows.shape[3]).swapaxes(1, 2)
