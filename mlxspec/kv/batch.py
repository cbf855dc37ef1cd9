"""The key-value cache of a batch: every sequence grows, and is rolled back, on its own.

    place 0    [ committed ..... | staged ]
    place 1    [ committed ............... | staged ]
    place 2    [ committed .. | staged ]

A forward stages equally many rows in every place, behind what is committed there; of a tree
narrower than the widest the last ones are padding, which no other row sees and no commit keeps.
A commit moves what does not lie in its place already: it costs the accepted rows.
"""

from collections.abc import Sequence

import mlx.core as mx

from mlxspec.device.packed import Quantization, Rows
from mlxspec.errors import CacheError, UnsupportedOperationError
from mlxspec.kv.cache import Cache
from mlxspec.kv.storage import BatchRows


class BatchCache:
    """Rows of every layer and sequence.

    Attributes:
        offsets: Committed tokens of each sequence: the position of its next token.
        num_staged: Rows that the last forward staged in every place.
    """

    def __init__(
        self, n_layers: int, num_places: int, quantization: Quantization | None = None
    ) -> None:
        """Make an empty cache for `num_places` sequences."""
        self.offsets = [0] * num_places
        self.num_staged = 0
        self._slots: mx.array | None = None  # (B, L) where the rows of this forward go
        self._keys = [BatchRows(num_places, quantization) for _ in range(n_layers)]
        self._values = [BatchRows(num_places, quantization) for _ in range(n_layers)]

    @staticmethod
    def like(cache: Cache, n_layers: int, num_places: int) -> "BatchCache":
        """Return an empty cache that keeps rows as `cache` does.

        Raises:
            UnsupportedOperationError: That one rotates.
        """
        if cache.max_size is not None:
            raise UnsupportedOperationError(
                f"a batch needs a cache that grows; this one is {cache.describe()}: load the model "
                "without max_kv_size"
            )
        return BatchCache(n_layers, num_places, cache.quantization)

    @property
    def num_places(self) -> int:
        """Sequences that it holds."""
        return len(self.offsets)

    @property
    def _stores(self) -> list[BatchRows]:
        return [*self._keys, *self._values]

    @property
    def arrays(self) -> list[mx.array]:
        """Every array of the cache, to be evaluated or measured."""
        return [array for store in self._stores for array in store.arrays]

    # ---- sequences -------------------------------------------------------------------------

    def fill(self, place: int, cache: Cache) -> None:
        """Begin a place anew with the committed rows of a full cache, as a copy."""
        self.rollback()
        planes = iter(cache.arrays)
        for store in self._stores if cache.offset else ():
            store.fill(place, [next(planes) for _ in range(store.num_planes)], cache.offset)
        self.offsets[place] = cache.offset

    def keep(self, places: Sequence[int]) -> None:
        """Keep the sequences in these places, in the order given, and forget the others."""
        self.rollback()
        for store in self._stores:
            store.keep(places)
        self.offsets = [self.offsets[place] for place in places]

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
            CacheError: There are not as many sequences as places.
        """
        B, _, L, _ = keys.shape
        if self.num_places != B:
            raise CacheError(f"rows of {B} sequences do not fit a cache of {self.num_places}")
        if self._slots is None:
            self.num_staged = L
            self._slots = mx.array(self.offsets)[:, None] + mx.arange(L)
        end = max(self.offsets) + L
        self._keys[layer].write(self._slots, keys, end)
        self._values[layer].write(self._slots, values, end)
        return self._keys[layer].read(end), self._values[layer].read(end)

    def commit(self, paths: Sequence[Sequence[int]]) -> None:
        """Keep the staged rows of a path in every place, and forget the others.

        Args:
            paths: Per place, indices of staged rows in ascending order, none to keep nothing;
                each row is a token whose position is one more than that of the row before, the
                first one's being the place's offset.

        Raises:
            CacheError: There are not as many paths as places, or a row was not staged.
        """
        if len(paths) != self.num_places:
            raise CacheError(f"got {len(paths)} paths for {self.num_places} sequences")
        if any(not 0 <= row < self.num_staged for path in paths for row in path):
            raise CacheError(f"cannot commit rows {list(paths)} of {self.num_staged} staged ones")
        moves = [
            (place, row, self.offsets[place] + index)
            for place, path in enumerate(paths)
            for index, row in enumerate(path)
            if row != index
        ]
        if moves:
            places, rows, slots = mx.array(moves, mx.int32).T
            for store in self._stores:
                store.move(places, rows, slots)
        pairs = zip(self.offsets, paths, strict=True)
        self.offsets = [offset + len(path) for offset, path in pairs]
        self.rollback()

    def rollback(self) -> None:
        """Forget all staged rows."""
        self.num_staged, self._slots = 0, None
        for store in self._stores:
            store.forget()
