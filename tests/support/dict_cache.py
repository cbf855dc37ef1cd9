"""A dictionary from positions to rows: the expected content of a cache; and the real content."""

import mlx.core as mx
import numpy as np

from mlxspec.device.packed import unpacked
from mlxspec.kv.cache import Cache

LAYERS, HEADS, SIZE = 2, 3, 32


class DictCache:
    """The expected content: one row per layer for each position, evicted as in plain decoding."""

    def __init__(self, max_size, keep):
        self.max_size, self.keep = max_size, keep
        self.rows = {}
        self.offset = 0

    def append(self, rows):
        for row in rows:
            self.rows[self.offset] = row
            self.offset += 1
        if self.max_size is not None:
            oldest = self.offset - (self.max_size - self.keep)
            for position in [p for p in self.rows if self.keep <= p < oldest]:
                del self.rows[position]


def random_rows(n, seed, *, heads=HEADS, size=SIZE, dtype=mx.float32):
    """Keys and values, (LAYERS, 2, 1, heads, n, size)."""
    key = mx.random.key(seed)
    return mx.random.normal((LAYERS, 2, 1, heads, n, size), key=key).astype(dtype)


def seen(cache, layer, keys, values):
    """Stage rows of a layer; return (2, B, H, n, D), the keys and values that attention sees."""
    return mx.stack([unpacked(rows) for rows in cache.stage(layer, keys, values)])


def stage(cache, rows):
    """Stage rows in every layer; return what attention would see, one array per layer."""
    return [seen(cache, layer, *rows[layer]) for layer in range(LAYERS)]


def by_position(rows):
    """Return a list over positions of (LAYERS, 2, 1, H, D) NumPy rows."""
    return [np.array(rows[..., i, :].astype(mx.float32)) for i in range(rows.shape[-2])]


def content(cache):
    """Return {position: (LAYERS, 2, 1, H, D)} of the committed rows, read as attention does."""
    probe = random_rows(1, 999)
    rows = mx.stack(stage(cache, probe))[..., :-1, :]
    cache.rollback()
    positions = cache.committed_positions().tolist()
    assert len(positions) == rows.shape[-2]
    return dict(zip(positions, by_position(rows), strict=True))


def assert_same(held, expected):
    assert sorted(held) == sorted(expected)
    for position, row in expected.items():
        np.testing.assert_array_equal(held[position], row)


def filled(max_size=None, keep=0, *, n=0, quantization=None):
    """A cache after n tokens, and the dictionary of its expected content."""
    cache = Cache(LAYERS, max_size=max_size, keep=keep, quantization=quantization)
    truth = DictCache(max_size, keep)
    for index in range(n):
        rows = random_rows(1, index)
        stage(cache, rows)
        cache.commit([0])
        truth.append(by_position(rows))
    return cache, truth
