"""The caches that a model of mlx-lm sees: each answers with rows, masks and states of ours.

A model of mlx-lm gets one cache per layer and asks it for `offset`, `make_mask` and
`update_and_fetch`, or for arrays by their index. The leaves here have the same names and answer for
the forward in progress, so a model's own code runs over a draft tree.
"""

from collections.abc import Sequence
from typing import Any

import mlx.core as mx

from mlxspec.adapted.current import Current
from mlxspec.device.packed import unpacked
from mlxspec.errors import UnsupportedOperationError


class RowsLeaf:
    """Keys and values of one layer."""

    start_position = 0  # of a chunked cache: no row is ever cut off in front

    def __init__(self, current: Current, layer: int, window: int | None) -> None:
        """Answer for the rows that our cache keeps as `layer`.

        Args:
            current: The forward in progress.
            layer: Index of the rows in our cache.
            window: Rows that the model's own cache would keep; None for all.
        """
        self._current = current
        self._layer = layer
        self._window = window
        self._rows: tuple[mx.array, mx.array] | None = None

    @property
    def offset(self) -> int:
        """Position of the first row of the forward, or of the root of a tree."""
        return self._current.offset

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        """Stage rows (B, Hkv, L, D); return all rows that attention may read."""
        all_keys, all_values = self._current.cache.stage(self._layer, keys, values)
        # Not packed: a model may look into its keys, and with sinks none attends to packed ones.
        self._rows = unpacked(all_keys), unpacked(all_values)
        return self._rows

    def keys_and_values(self) -> tuple[mx.array, mx.array]:
        """Return what the last `update_and_fetch` of this forward returned."""
        assert self._rows is not None, "no layer has staged these rows yet"
        return self._rows

    @property
    def state(self) -> tuple[mx.array, mx.array]:
        """As `keys_and_values`."""
        return self.keys_and_values()

    def make_mask(
        self, N: int, window_size: int | None = None, return_array: bool = False, **_: Any
    ) -> mx.array | str | None:
        """Return the mask of the forward's `N` rows for a layer with this window."""
        window = window_size or self._window
        if window not in self._current.masks:
            raise UnsupportedOperationError(f"no mask was made for a window of {window} tokens")
        mask = self._current.masks[window]
        if return_array and not isinstance(mask, mx.array):
            end = self._current.offset + N
            mask = mx.arange(self._current.offset, end)[:, None] >= mx.arange(end)
        return mask

    def maybe_trim_front(self) -> None:
        """Do nothing: the mask hides what a chunk does not see."""

    def release(self) -> None:
        """Drop the references to the rows of a forward, so that the next can write in place."""
        self._rows = None


class StateLeaf:
    """The recurrent state of one layer."""

    lengths = None
    left_padding = None

    def __init__(self, current: Current, leaf: int, size: int) -> None:
        """Answer for the state of `size` arrays that our cache keeps as `leaf`."""
        self._current = current
        self._leaf = leaf
        self._size = size

    def __getitem__(self, index: int) -> mx.array | None:
        if not 0 <= index < self._size:  # the end of an iteration over all arrays
            raise IndexError(f"this state has {self._size} arrays, and no array {index}")
        return self._current.cache.states.read(self._leaf, index, self._current.rows)

    def __setitem__(self, index: int, value: mx.array) -> None:
        self._current.cache.states.write(self._leaf, index, value, self._current.rows)

    @property
    def offset(self) -> int:
        """Position of the first row of the forward."""
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
    def offset(self) -> int:
        """Position of the first row of the forward."""
        offset: int = self.caches[0].offset
        return offset
