"""The key-value cache of all layers: stage rows, then commit some of them.

A forward *stages* its rows after the committed ones. After verification, `commit` keeps one path of
the staged rows and `rollback` keeps none. A forward never changes committed rows, so a draft can be
rolled back at any time, even after a rotating cache has wrapped.

    full       [ committed ............ | staged ]      the committed rows grow without limit
    windowed   [ evicted | committed .. | staged ]      layers that see a window (`windows.py`)
    rotating   [ sinks | ring ......... | staged ]      at most `max_size` committed rows

Keys are stored with their rotary position applied, so the order of slots in the ring does not
matter: masks compare positions (attention sinks: StreamingLLM, Xiao et al. 2023,
https://arxiv.org/abs/2309.17453). A commit copies only the accepted rows, at any context length.
"""

from collections.abc import Mapping, Sequence
from copy import copy
from typing import Any, Protocol

import mlx.core as mx
import numpy as np

from mlxspec.device.packed import Quantization, Rows
from mlxspec.errors import CacheError
from mlxspec.kv.slots import Slots, runs
from mlxspec.kv.states import Snapshot, States
from mlxspec.kv.steady import Steady
from mlxspec.kv.storage import RowStore
from mlxspec.kv.windows import USUAL_EVICTION, Eviction, Mask, Windows, can_go_back
from mlxspec.params import Options

_NUM_MARKS = 8  # ends of texts to which a chat can go back; a state takes megabytes


class CachedModel(Protocol):
    """What a cache needs from a model's config."""

    @property
    def num_row_stores(self) -> int: ...  # pairs of keys and values per token

    @property
    def num_states(self) -> int: ...  # recurrent states

    @property
    def row_windows(self) -> Windows: ...  # per pair of keys and values

    @property
    def head_dim(self) -> int: ...  # numbers of a key


class Cache:
    """Rows of every layer, committed together.

    Attributes:
        offset: Committed tokens, evicted ones included: the position of the next token.
        num_layers: Number of pairs of keys and values per token.
        max_size: Largest number of committed rows of a rotating cache, or None for a full cache.
        keep: Number of attention sinks: first tokens that a rotating cache never evicts.
        windows: Per layer, the number of latest rows that a full cache must keep; None for all.
        steady: How forwards keep their shapes while the text grows; None if they need not.
    """

    def __init__(
        self,
        num_layers: int,
        *,
        max_size: int | None = None,
        keep: int = 0,
        quantization: Quantization | None = None,
        num_states: int = 0,
        windows: Windows = (),
        eviction: Eviction = USUAL_EVICTION,
    ) -> None:
        """Make an empty cache.

        A rotating cache holds the same positions in all layers, so it needs no `windows`.
        """
        if keep < 0:
            raise ValueError(f"keep is the number of first tokens to hold, 0 or more; got {keep}")
        if max_size is not None and max_size <= keep:
            raise ValueError(f"max_size must be larger than keep, which is {keep}; got {max_size}")
        self.max_size = max_size
        self.keep = keep if max_size is not None else 0
        self.quantization = quantization
        self.windows = windows if windows and max_size is None else (None,) * num_layers
        self.eviction = eviction
        self.steady: Steady | None = None
        self._slots = Slots(self.max_size, self.keep)
        self.num_layers = num_layers
        self._num_states = num_states
        self.reset()

    def reset(self) -> None:
        """Forget all rows and release the memory."""
        self.offset = 0
        self._staged = [0] * self.num_layers
        self._evicted: dict[int | None, int] = dict.fromkeys(self.windows, 0)
        self._keys = [RowStore(self.quantization) for _ in range(self.num_layers)]
        self._values = [RowStore(self.quantization) for _ in range(self.num_layers)]
        self.states = States(self._num_states)
        self._marks: list[tuple[int, Snapshot]] = []
        self._held_at = -1
        self._held = dict[int | None, tuple[int, list[list[mx.array]]]]()

    @staticmethod
    def for_model(config: "CachedModel", **kind: Any) -> "Cache":
        """Return an empty cache for a model with this config; `kind` as in `Cache`."""
        windows = config.row_windows
        return Cache(config.num_row_stores, num_states=config.num_states, windows=windows, **kind)

    def empty_like(self) -> "Cache":
        other = copy(self)
        other.reset()
        return other

    def filled(
        self,
        length: int,
        rows: Sequence[mx.array],
        evicted: Mapping[int | None, int] | None = None,
        states: Snapshot = (),
    ) -> "Cache":
        """Return a full cache with the same settings that holds the rows of `length` tokens.

        `rows` are the planes (1, Hkv, L, D) in the order of `Cache.rows`, referenced, not copied.
        The first rows can be left out: `evicted` gives their number by window. `states` are the
        recurrent states after the text.
        """
        cache = self.empty_like()
        stores = (*cache._keys, *cache._values) if rows else ()
        each = len(rows) // max(len(stores), 1)  # planes of a store: three if it is quantised
        for index, store in enumerate(stores):
            store.adopt(rows[index * each : (index + 1) * each])
        cache.offset = length
        cache._evicted |= evicted or {}
        if states:
            cache.states.restore(states)
            cache._mark()
        return cache

    @property
    def can_be_cut(self) -> bool:
        """Whether a prefix of the rows equals the rows of that prefix of the text."""
        return self.max_size is None and not self._num_states and set(self.windows) <= {None}

    def rows(self, start: int, end: int) -> list[mx.array]:
        """Return the planes (1, Hkv, end - start, D) of committed rows, keys first; a view."""
        return [plane[:, :, start:end] for plane in self.row_arrays]

    # ---- staging ---------------------------------------------------------------------------

    def stage(self, layer: int, keys: mx.array, values: mx.array) -> tuple[Rows, Rows]:
        """Add rows of one layer after the rows that are staged already.

        Keys and values are (B, Hkv, L, D); keys have their rotary position applied.

        Returns:
            Keys and values (B, Hkv, n_keys, D) of all rows that the layer holds: committed,
                previously staged, new, and blank ones up to `num_keys`; `visible` gives the mask
                over them. They are packed in a quantised cache.
        """
        if keys.ndim != 4 or keys.shape[:3] != values.shape[:3]:
            raise CacheError(
                f"keys {keys.shape} and values {values.shape} must both be (B, Hkv, L, D), with "
                "the same B, Hkv and L"
            )
        # Both checks precede the first write, so an error leaves nothing staged.
        self._keys[layer].check(keys)
        self._values[layer].check(values)
        start = self.num_committed - self.num_evicted(layer) + self._staged[layer]
        self._staged[layer] += keys.shape[2]
        end = self.num_keys(self._staged[layer]) - self.num_evicted(layer)
        self._keys[layer].write(start, keys, end)
        self._values[layer].write(start, values, end)
        return self._keys[layer].read(end), self._values[layer].read(end)

    def visible(self, layer: int, mask: Mask) -> Mask:
        """Convert a mask over all committed rows to one over the rows that a layer holds."""
        evicted = self.num_evicted(layer)
        return mask[..., evicted:] if isinstance(mask, mx.array) and evicted else mask

    def num_evicted(self, layer: int) -> int:
        """Return how many of the first rows a layer with a window has evicted."""
        return self._evicted[self.windows[layer]]

    @property
    def num_committed(self) -> int:
        """Number of slots with committed rows, evicted ones included; staged rows follow them."""
        return self._slots.num_used(self.offset)

    @property
    def has_blank_keys(self) -> bool:
        """Whether forwards read blank rows too, which a mask has to hide."""
        return self.steady is not None and self.steady.pads_keys

    def num_keys(self, staged: int) -> int:
        """Return the number of keys, evicted ones included, once `staged` rows are staged."""
        if self.steady is None:
            return self.num_committed + staged
        return self.steady.num_keys(self.num_committed, staged)

    def steady_rows(self) -> int:
        """Return how many rows can be committed before a forward has another shape."""
        assert self.steady is not None, "without it every row changes the shape"
        rows = [self.steady.room(self.num_committed)]
        if self.max_size is not None:  # a ring that has wrapped holds its rows in another order
            rows.append(self.max_size - self.offset)
        for window, evicted in self._evicted.items():
            if window is not None:
                rows.append(self.eviction.next_at(window, evicted) - 1 - self.offset)
        return max(0, min(rows))

    def is_as_read(self, length: int) -> bool:
        """Return whether the rows of a length are those of a text that ends there."""
        return length == self._held_at or all(
            evicted == self.eviction.num_due(length, window, 0)
            for window, evicted in self._evicted.items()
        )

    @property
    def num_staged(self) -> int:
        """Number of staged rows of the first layer; after a whole forward, of every layer."""
        return self._staged[0] if self._staged else self.states.num_staged

    def hold(self) -> None:
        """Hold the rows of this length until the next call: `truncate` can go back to it.

        Layers with a window then keep the rows of their next eviction a second time.
        """
        self._held_at, self._held = self.offset, {}

    def commit(self, rows: Sequence[int]) -> None:
        """Commit the staged rows with these indices, in this order; forget the others.

        The rows must be one path: the first has position `offset`, and each next position is one
        more.
        """
        assert len(set(self._staged)) <= 1, "a forward staged rows in some layers only"
        staged = self.num_staged
        if len(set(rows)) < len(rows) or any(not 0 <= row < staged for row in rows):
            raise CacheError(f"cannot commit rows {list(rows)} of {staged} staged ones")
        placement = self._slots.placement(rows, self.offset)
        # The first rows of a full cache are in their slots already, as in plain decoding: no copy.
        if any(self.num_committed + row != slot for row, slot in placement):
            self._place(placement)
        is_text = self.states.levels is None
        self.states.commit([rows])
        self.offset += len(rows)
        if is_text:
            self._mark()
        self.rollback()
        self._evict()

    def rollback(self) -> None:
        """Forget all staged rows, even if a forward was interrupted."""
        self._staged = [0] * self.num_layers
        self.states.forget()
        for store in (*self._keys, *self._values):
            store.forget()

    def _evict(self) -> None:
        """Drop the rows that no later row can see, in layers with a window."""
        for window, evicted in self._evicted.items():
            more = self.eviction.num_due(self.offset, window, evicted)
            if more < self.eviction.block:
                continue
            stores = self._stores(window)
            if self._held_at >= 0 and window not in self._held:
                # References alone: an eviction copies the rows that stay.
                self._held[window] = evicted, [list(store.arrays) for store in stores]
            for store in stores:
                store.drop_first(more, self.offset - evicted)
            self._evicted[window] = evicted + more

    def _stores(self, window: int | None) -> list[RowStore]:
        stores = zip((*self._keys, *self._values), self.windows * 2, strict=True)
        return [store for store, own in stores if own == window]

    def _mark(self) -> None:
        """Store the recurrent states at the end of a text, so that `truncate` can restore them."""
        if len(self.states):
            self._marks.append((self.offset, self.states.snapshot()))
            del self._marks[:-_NUM_MARKS]

    def _place(self, placement: Sequence[tuple[int, int]]) -> None:
        rows = mx.array([row for row, _ in placement], mx.int32)
        for window, evicted in self._evicted.items():
            placed = runs([slot - evicted for _, slot in placement])
            for store in self._stores(window):
                store.place(rows, placed)

    # ---- positions -------------------------------------------------------------------------

    def committed_positions(self) -> np.ndarray:
        """Return the position of the token in each committed slot, (num_committed,) int32."""
        return self._slots.positions(self.offset)

    def nearest(self, length: int) -> int | None:
        """Return the largest length up to `length` to which `truncate` can go back, or None."""
        ends = [length, *(mark for mark, _ in self._marks if mark <= length)]
        return max((end for end in ends if self.can_truncate(end)), default=None)

    def can_truncate(self, length: int) -> bool:
        """Return whether the cache can go back to the first `length` tokens without a forward.

        A ring that has wrapped cannot go back: it has evicted rows that earlier tokens attend to.
        Layers with a window can go back only some tokens, for the same reason.
        """
        if len(self.states) and length not in (self.offset, *(mark for mark, _ in self._marks)):
            return False
        is_held = length == self._held_at or can_go_back(length, self._evicted)
        if length < self.offset and not is_held:
            return False
        if self.max_size is None or self.offset <= self.max_size:
            return 0 <= length <= self.offset
        return length == self.offset

    def truncate(self, length: int) -> None:
        """Keep the first `length` committed tokens and forget all staged rows."""
        if not self.can_truncate(length):
            raise CacheError(
                f"cannot go back to {length} tokens: the cache holds {self.offset}"
                + ("" if self.max_size is None else f" in a ring of {self.max_size}")
                + ("; the rows in front of a window are evicted" * any(self._evicted.values()))
            )
        for mark, snapshot in self._marks if length < self.offset else ():
            if mark == length:
                self.states.restore(snapshot)
        self._marks = [(mark, snapshot) for mark, snapshot in self._marks if mark <= length]
        if length == self._held_at:
            for window, (evicted, held) in self._held.items():
                self._evicted[window] = evicted
                for store, planes in zip(self._stores(window), held, strict=True):
                    store.adopt(planes)
            self.hold()
        elif length < self._held_at:
            self._held_at, self._held = -1, {}
        self.offset = length  # the later rows stay in their slots until others overwrite them
        self.rollback()

    @property
    def arrays(self) -> list[mx.array]:
        """All arrays of the cache, to evaluate or to measure."""
        return self.row_arrays + self.states.arrays

    @property
    def row_arrays(self) -> list[mx.array]:
        """The arrays (B, Hkv, slots, D) of keys, then of values."""
        return [array for store in (*self._keys, *self._values) for array in store.arrays]

    @property
    def nbytes(self) -> int:
        """Bytes of memory, unused slots included."""
        return sum(array.nbytes for array in self.arrays)

    def describe(self) -> str:
        """Return the kind of cache for display, such as "rotating 64 (4 kept), 8-bit"."""
        bits = None if self.quantization is None else self.quantization.bits
        return cache_words(self.max_size, self.keep, bits)


def cache_words(max_size: int | None = None, keep: int = 0, bits: int | None = None) -> str:
    """Return the kind of a cache for display; `bits` are those of its rows."""
    kind = "full" if max_size is None else f"rotating {max_size} ({keep} kept)"
    return kind if bits is None else f"{kind}, {bits}-bit"


def make_cache(config: CachedModel, options: Options) -> Cache:
    """Return an empty cache that fits a model, of the kind that the options name."""
    bits, size = options.kv_bits, options.max_kv_size
    packing = None if bits is None else Quantization.for_head_dim(bits, config.head_dim)
    return Cache.for_model(config, max_size=size, keep=options.keep, quantization=packing)
