"""The key-value cache of a batch: every sequence grows, and is rolled back, on its own.

    sequence 0 [ committed ..... | staged ]
    sequence 1 [ committed ............... | staged ]
    sequence 2 [ committed .. | staged ]

A forward stages equally many rows in every sequence, behind what is committed there; of a tree
narrower than the widest the last ones are padding, which no other row sees and no commit keeps.
A commit moves what does not lie in its slot already: it costs the accepted rows. Layers with a
window evict as those of a single cache do, all sequences at once.
"""

from collections.abc import Sequence

import mlx.core as mx

from mlxspec.device.packed import Quantization, Rows
from mlxspec.errors import CacheError, UnsupportedOperationError
from mlxspec.kv.cache import Cache
from mlxspec.kv.states import States
from mlxspec.kv.storage import BatchRows
from mlxspec.kv.windows import USUAL_EVICTION, Eviction, Mask, Windows, held_columns


class BatchCache:
    """Rows of every layer and sequence.

    Attributes:
        offsets: Committed tokens of each sequence: the position of its next token.
        quantization: How rows are packed; None where they are not.
        states: The recurrent states of all layers and sequences.
        windows: Per layer, the latest rows that it has to hold; None for all.
        eviction: When layers with a window evict.
        num_staged: Rows that the last forward staged in every sequence.
    """

    def __init__(
        self,
        n_layers: int,
        num_sequences: int,
        quantization: Quantization | None = None,
        num_states: int = 0,
        windows: Windows = (),
        eviction: Eviction = USUAL_EVICTION,
    ) -> None:
        """Make an empty cache for `num_sequences` sequences."""
        self.offsets = [0] * num_sequences
        self.quantization = quantization
        self.num_staged = 0
        self.eviction = eviction
        self.windows = windows or (None,) * n_layers
        self._evicted = {window: [0] * num_sequences for window in self.windows}
        self._slots: dict[int | None, mx.array] = {}  # (B, L) where the rows of this forward go
        self._keys = [BatchRows(num_sequences, quantization) for _ in range(n_layers)]
        self._values = [BatchRows(num_sequences, quantization) for _ in range(n_layers)]
        self.states = States(num_states, num_sequences)

    @staticmethod
    def like(cache: Cache, num_sequences: int) -> "BatchCache":
        """Return an empty cache that keeps rows as `cache` does.

        Raises:
            UnsupportedOperationError: That one rotates.
        """
        if cache.max_size is not None:
            raise UnsupportedOperationError(
                f"a batch needs a cache that grows; this one is {cache.describe()}: load the model "
                "without max_kv_size"
            )
        return BatchCache(
            cache.num_layers,
            num_sequences,
            cache.quantization,
            len(cache.states),
            cache.windows,
            cache.eviction,
        )

    @property
    def num_sequences(self) -> int:
        """Sequences that it holds."""
        return len(self.offsets)

    @property
    def _stores(self) -> list[BatchRows]:
        return [*self._keys, *self._values]

    def _stores_of(self, window: int | None) -> list[BatchRows]:
        pairs = zip(self._stores, self.windows * 2, strict=True)
        return [store for store, own in pairs if own == window]

    @property
    def arrays(self) -> list[mx.array]:
        """Every array of the cache, to be evaluated or measured."""
        rows = [array for store in self._stores for array in store.arrays]
        return rows + self.states.arrays

    # ---- sequences -------------------------------------------------------------------------

    def fill(self, sequence: int, cache: Cache) -> None:
        """Begin a sequence anew with the committed rows of a full cache, as a copy."""
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
        """Return a full cache with the committed rows of a sequence, as a copy.

        Args:
            sequence: Its index.
            like: A cache with the settings that the new one gets.
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
        """Add empty sequences behind the others."""
        self.rollback()
        for store in self._stores:
            store.add(count)
        self.states.add(count)
        for counts in self._evicted.values():
            counts += [0] * count
        self.offsets += [0] * count

    def keep(self, sequences: Sequence[int]) -> None:
        """Keep the sequences of these indices, in the order given, and forget the others."""
        self.rollback()
        for store in self._stores:
            store.keep(sequences)
        self.states.keep(sequences)
        for window, counts in self._evicted.items():
            self._evicted[window] = [counts[sequence] for sequence in sequences]
        self.offsets = [self.offsets[sequence] for sequence in sequences]

    # ---- staging ---------------------------------------------------------------------------

    def stage(self, layer: int, keys: mx.array, values: mx.array) -> tuple[Rows, Rows]:
        """Add rows of one layer behind what every sequence has committed.

        Args:
            layer: Index of the layer.
            keys: (B, Hkv, L, D), rotary position applied.
            values: (B, Hkv, L, D).

        Returns:
            Keys and values (B, Hkv, n_keys, D), n_keys reaching to the end of the sequence of which
            the layer holds most; packed in a quantised cache. `visible` gives the mask over them.

        Raises:
            CacheError: The rows are of another number of sequences.
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
        """Return a mask over the rows that a layer holds, of one (B, 1, L, n_keys) over all."""
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
            paths: Per sequence, indices of staged rows in ascending order, none to keep nothing;
                each row is a token whose position is one more than that of the row before, the
                first one's being the sequence's offset.

        Raises:
            CacheError: There are not as many paths as sequences, or a row was not staged.
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
        """Let the layers with a window drop the rows that no later row of a sequence can see."""
        for window, evicted in self._evicted.items():
            pairs = zip(self.offsets, evicted, strict=True)
            more = [self.eviction.num_due(length, window, old) for length, old in pairs]
            if max(more) < self.eviction.block:
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
