"""The key-value cache of a batch: every sequence grows, and is rolled back, on its own.

    sequence 0 [ committed ..... | staged ]
    sequence 1 [ committed ............... | staged ]
    sequence 2 [ committed .. | staged ]

A forward stages equally many rows in every sequence, behind what is committed there; of a tree
narrower than the widest the last ones are padding, which no other row sees and no commit keeps.
A commit moves what does not lie in its slot already: it costs the accepted rows.
"""

from collections.abc import Sequence

import mlx.core as mx

from mlxspec.device.packed import Quantization, Rows
from mlxspec.errors import CacheError, UnsupportedOperationError
from mlxspec.kv.cache import Cache
from mlxspec.kv.states import States
from mlxspec.kv.storage import BatchRows


class BatchCache:
    """Rows of every layer and sequence.

    Attributes:
        offsets: Committed tokens of each sequence: the position of its next token.
        quantization: How rows are packed; None where they are not.
        states: The recurrent states of all layers and sequences.
        num_staged: Rows that the last forward staged in every sequence.
    """

    def __init__(
        self,
        n_layers: int,
        num_sequences: int,
        quantization: Quantization | None = None,
        num_states: int = 0,
    ) -> None:
        """Make an empty cache for `num_sequences` sequences."""
        self.offsets = [0] * num_sequences
        self.quantization = quantization
        self.num_staged = 0
        self._slots: mx.array | None = None  # (B, L) where the rows of this forward go
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
        return BatchCache(cache.num_layers, num_sequences, cache.quantization, len(cache.states))

    @property
    def num_sequences(self) -> int:
        """Sequences that it holds."""
        return len(self.offsets)

    @property
    def _stores(self) -> list[BatchRows]:
        return [*self._keys, *self._values]

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
        for store in self._stores if cache.offset else ():
            store.fill(sequence, [next(planes) for _ in range(store.num_planes)], cache.offset)
        self.states.fill(sequence, cache.states)
        self.offsets[sequence] = cache.offset

    def keep(self, sequences: Sequence[int]) -> None:
        """Keep the sequences of these indices, in the order given, and forget the others."""
        self.rollback()
        for store in self._stores:
            store.keep(sequences)
        self.states.keep(sequences)
        self.offsets = [self.offsets[sequence] for sequence in sequences]

    # ---- staging ---------------------------------------------------------------------------

    def stage(self, layer: int, keys: mx.array, values: mx.array) -> tuple[Rows, Rows]:
        """Add rows of one layer behind what every sequence has committed.

        Args:
            layer: Index of the layer.
            keys: (B, Hkv, L, D), rotary position applied.
            values: (B, Hkv, L, D).

        Returns:
            Keys and values (B, Hkv, n_keys, D), n_keys reaching to the end of the longest; packed
            in a quantised cache.

        Raises:
            CacheError: The rows are of another number of sequences.
        """
        B, _, L, _ = keys.shape
        if self.num_sequences != B:
            raise CacheError(f"rows of {B} sequences do not fit a cache of {self.num_sequences}")
        if self._slots is None:
            self.num_staged = L
            self._slots = mx.array(self.offsets)[:, None] + mx.arange(L)
        end = max(self.offsets) + L
        self._keys[layer].write(self._slots, keys, end)
        self._values[layer].write(self._slots, values, end)
        return self._keys[layer].read(end), self._values[layer].read(end)

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
            for store in self._stores:
                store.move(sequences, rows, slots)
        self.states.commit(paths)
        pairs = zip(self.offsets, paths, strict=True)
        self.offsets = [offset + len(path) for offset, path in pairs]
        self.rollback()

    def rollback(self) -> None:
        """Forget all staged rows."""
        self.num_staged, self._slots = 0, None
        self.states.forget()
        for store in self._stores:
            store.forget()
