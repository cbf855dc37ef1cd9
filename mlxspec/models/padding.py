"""Rows added for nothing, because a BLAS runs some row counts faster than smaller ones.

OpenBLAS computes in tiles, and with several threads it divides the rows among them: on two cores
16 rows take half the time of 12, and less than 4. A forward of few rows then gains from going
through the matrix products as 16 rows; zeros are added once and cut off again, and neither
attention nor the cache ever sees them. Which counts are fast is measured once per process, on
products like those of a small model; other devices and other BLAS show no such steps.
"""

import time
from functools import cache

import mlx.core as mx

from mlxspec import backend

STEPS = (16, 4)
"""Multiples that are tried, the first that pays being taken."""
_LEAST_ROWS = 3  # one and two rows have kernels of their own
_MOST_ROWS = 64  # beyond, what is added costs as much as it saves
_LARGEST_RATIO = 0.85  # of the time of a multiple to that of fewer rows: a gain that is no noise
_SHAPE, _REPEATS = (1536, 576), 5


def padded(x: mx.array) -> mx.array:
    """Return (1, L, D) rows with zeros behind them, as many as make the products fastest.

    Batches are returned as they are: they have rows enough.
    """
    rows = x.shape[1]
    if x.shape[0] > 1 or not _LEAST_ROWS <= rows <= _MOST_ROWS:
        return x
    missing = -rows % row_step()
    return mx.pad(x, [(0, 0), (0, missing), (0, 0)]) if missing else x


@cache
def row_step() -> int:
    """Return the number of rows, 1 where all are alike, whose multiples a CPU runs fastest."""
    if not backend.is_cpu():
        return 1
    counts = sorted({count for step in STEPS for count in (step, step * 3 // 4)})
    ms = _fastest_ms(counts)
    return next((n for n in STEPS if ms[n] < _LARGEST_RATIO * ms[n * 3 // 4]), 1)


def _fastest_ms(counts: list[int]) -> dict[int, float]:
    weight = mx.random.normal(_SHAPE, key=mx.random.key(0))
    inputs = {count: mx.zeros((count, _SHAPE[1])) for count in counts}
    mx.eval(weight, inputs)
    fastest = dict.fromkeys(counts, float("inf"))
    for _ in range(_REPEATS):
        for count, x in inputs.items():
            start = time.perf_counter()
            mx.eval(x @ weight.T)
            fastest[count] = min(fastest[count], (time.perf_counter() - start) * 1e3)
    return fastest
