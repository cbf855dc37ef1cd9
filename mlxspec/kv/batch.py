"""The key-value cache of a batch: each sequence grows and rolls back independently.

    sequence 0 [ committed ..... | staged ]
    sequence 1 [ committed ............... | staged ]
    sequence 2 [ committed .. | staged ]

A forward stages equally many rows in every sequence. In a tree that is narrower than the widest one
the last rows are padding, which no other row sees and no commit keeps. A commit moves only rows
that are not in their slots already. Layers with a window evict in all sequences at once.
"""

from collections.abc import Sequence

import mlx.core as mx

from mlxspec.device.packed import Rows
from mlxspec.errors import CacheError, UnsupportedOperationError
from mlxspec.kv.cache import Cache
from mlxspec.kv.states import States
from mlxspec.kv.storage import BatchRows
from mlxspec.kv.windows import Mask, held_columns


class BatchCache:
    """Rows of every layer and sequence.

    Attributes:
        offsets: Committed tokens of each sequence, which is the position of its next token.
        windows: Per layer, the number of latest rows that it must keep; None for all.
        num_staged: Rows that the last forward staged in every sequence.
    """

    def __init__(self, like: Cache, num_sequences: int) -> None:
        """Make an empty cache with the settings of `like`, which must not rotate."""
        if like.max_size is not None:
            raise UnsupportedOperationError(
                f"a batch needs a cache that grows; this one is {like.describe()}: load the model "
                "without max_kv_size"
            )
        self.offsets = [0] * num_sequences
        self.num_staged = 0
        self.windows = like.windows
        self._eviction = like.eviction
        self._evicted = {window: [0] * num_sequences for window in self.windows}
        # (B, L) target slots of the rows of this forward.
        self._slots: dict[int | None, mx.array] = {}
        layers = range(like.num_layers)
        self._keys = [BatchRows(num_sequences, like.quantization) for _ in layers]
        self._values = [BatchRows(num_sequences, like.quantization) for _ in layers]
        self.states = States(len(like.states), num_sequences)

    @property
    def num_sequences(self) -> int:
        """Number of sequences."""
        return len(self.offsets)

    @property
    def _stores(self) -> list[BatchRows]:
        return [*self._keys, *self._values]

    def _stores_of(self, window: int | None) -> list[BatchRows]:
        pairs = zip(self._stores, self.windows * 2, strict=True)
        return [store for store, own in pairs if own == window]

    @property
    def arrays(self) -> list[mx.array]:
        """Every array of the cache, to evaluate or to measure."""
        rows = [array for store in self._stores for array in store.arrays]
        return rows + self.states.arrays

    # ---- sequences -------------------------------------------------------------------------

    def fill(self, sequence: int, cache: Cache) -> None:
        """Replace a sequence by a copy of the committed rows of a full cache."""
        self.rollback()
        planes = iter(cache.row_arrays)
        for index, store in enumerate(self._stores if cache.offset else ()):
            held = cache.offset - cache.num_evicted(index % cache.num_layers)
            store.fill(sequence, [next(planes) for _ in range(store.num_planes)], held)
        for layer, window in enumerate(self.windows):
            self._evicted[window][sequence] = cache.num_evicted(layer)
        self.states.fill(sequence, cache.states)
        self.offsets[sequence] = cache.offset

    def take(self, sequence: int, like: Cache) -> Cache:
        """Return a full cache with a copy of the committed rows of a sequence.

        The new cache has the settings of `like`.
        """
        self.rollback()
        counts = {window: evicted[sequence] for window, evicted in self._evicted.items()}
        length = self.offsets[sequence]
        rows = [
            plane
            for store, window in zip(self._stores, self.windows * 2, strict=True)
            for plane in store.rows_of(sequence, 0, length - counts[window])
        ]
        return like.filled(length, rows, counts, self.states.of_sequence(sequence))

    def rows(self, sequence: int, start: int, end: int) -> list[mx.array]:
        """Return the planes (1, Hkv, end - start, D) of some committed rows; see `Cache.rows`."""
        planes = (store.rows_of(sequence, start, end) for store in self._stores)
        return [plane for own in planes for plane in own]

    def add(self, count: int) -> None:
        """Append empty sequences."""
        self.rollback()
        for store in self._stores:
            store.add(count)
        self.states.add(count)
        for counts in self._evicted.values():
            counts += [0] * count
        self.offsets += [0] * count

    def keep(self, sequences: Sequence[int]) -> None:
        """Keep the sequences with these indices, in this order, and forget the others."""
        self.rollback()
        for store in self._stores:
            store.keep(sequences)
        self.states.keep(sequences)
        for window, counts in self._evicted.items():
            self._evicted[window] = [counts[sequence] for sequence in sequences]
        self.offsets = [self.offsets[sequence] for sequence in sequences]

    # ---- staging ---------------------------------------------------------------------------

    def stage(self, layer: int, keys: mx.array, values: mx.array) -> tuple[Rows, Rows]:
        """Add rows of one layer after the committed rows of every sequence.

        Keys and values are (B, Hkv, L, D); keys have their rotary position applied.

        Returns:
            Keys and values (B, Hkv, n_keys, D), where n_keys reaches to the end of the sequence
                with the most rows in the layer; packed in a quantised cache. `visible` gives the
                mask over them.
        """
        B, _, L, _ = keys.shape
        if self.num_sequences != B:
            raise CacheError(f"rows of {B} sequences do not fit a cache of {self.num_sequences}")
        self.num_staged = L
        window = self.windows[layer]
        held = self._held(window)
        if window not in self._slots:
            self._slots[window] = mx.array(held)[:, None] + mx.arange(L)
        end = max(held) + L
        self._keys[layer].write(self._slots[window], keys, end)
        self._values[layer].write(self._slots[window], values, end)
        return self._keys[layer].read(end), self._values[layer].read(end)

    def visible(self, layer: int, mask: Mask) -> Mask:
        """Convert a (B, 1, L, n_keys) mask over all rows to one over the rows of a layer."""
        evicted = self._evicted[self.windows[layer]]
        if not isinstance(mask, mx.array) or not any(evicted):
            return mask
        return held_columns(mask, evicted, max(self._held(self.windows[layer])) + mask.shape[2])

    def _held(self, window: int | None) -> list[int]:
        """Return how many committed rows of each sequence the layers with a window hold."""
        pairs = zip(self.offsets, self._evicted[window], strict=True)
        return [offset - evicted for offset, evicted in pairs]

    def commit(self, paths: Sequence[Sequence[int]]) -> None:
        """Keep the staged rows of a path in every sequence, and forget the others.

        Args:
            paths: Per sequence, indices of staged rows in ascending order, empty to keep nothing.
                Positions are consecutive: the first row has the sequence's offset, and each next
                one is one more.
        """
        if len(paths) != self.num_sequences:
            raise CacheError(f"got {len(paths)} paths for {self.num_sequences} sequences")
        num_staged = max(self.num_staged, self.states.num_staged)
        if any(not 0 <= row < num_staged for path in paths for row in path):
            raise CacheError(f"cannot commit rows {list(paths)} of {num_staged} staged ones")
        moves = [
            (sequence, row, self.offsets[sequence] + index)
            for sequence, path in enumerate(paths)
            for index, row in enumerate(path)
            if row != index
        ]
        if moves:
            sequences, rows, slots = mx.array(moves, mx.int32).T
            for window, evicted in self._evicted.items():
                own = slots - mx.array(evicted, mx.int32)[sequences] if any(evicted) else slots
                for store in self._stores_of(window):
                    store.move(sequences, rows, own)
        self.states.commit(paths)
        pairs = zip(self.offsets, paths, strict=True)
        self.offsets = [offset + len(path) for offset, path in pairs]
        self.rollback()
        self._evict()

    def _evict(self) -> None:
        """Drop the rows that no later row of a sequence can see, in layers with a window."""
        for window, evicted in self._evicted.items():
            pairs = zip(self.offsets, evicted, strict=True)
            more = [self._eviction.num_due(length, window, old) for length, old in pairs]
            if max(more) < self._eviction.block:
                continue
            self._evicted[window] = [old + new for old, new in zip(evicted, more, strict=True)]
            for store in self._stores_of(window):
                store.drop_first(more, max(self._held(window)))

    def rollback(self) -> None:
        """Forget all staged rows."""
        self.num_staged, self._slots = 0, {}
        self.states.forget()
        for store in self._stores:
            store.forget()
