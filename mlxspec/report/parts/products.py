"""Measures the cost of products of 1 to 32 rows: with 4-bit, 8-bit and 16-bit weights.

The sizes are those of the layers of the default model and of a model with 7 billion weights.
Several matrices take turns, as the layers of a model do: one matrix would stay in a hardware cache.
"""

from collections.abc import Callable, Iterator
from itertools import product

import mlx.core as mx

from mlxspec.budget.cost import fastest_times
from mlxspec.device import backend
from mlxspec.report.allowance import Allowance, Finding, curve_dict
from mlxspec.report.shapes import BITS, ROWS, SIZES, product_name

_TURNS = 8
_GROUP_SIZE = 64
_DTYPE = mx.float16
_BYTES = 48_000_000  # of all matrices together, if one alone is not larger
_MOST_MATRICES = 24


def measure(time: Allowance) -> Iterator[Finding]:
    """Yield the curve of each size and number of bits."""
    cases = list(product(SIZES, BITS))
    for number, ((width, height), bits) in enumerate(cases):
        if time.is_over:
            return
        yield (
            product_name(bits, width, height),
            _curve(bits, width, height, time.share(len(cases) - number)),
        )


def _curve(bits: int, width: int, height: int, time: Allowance) -> dict[str, list[float]]:
    count = _count(bits * width * height // 8)
    products = [_product(bits, width, height) for _ in range(count)]
    rows = mx.random.normal((max(ROWS), width)).astype(_DTYPE)
    mx.eval(rows)

    def forward(num_rows: int) -> None:
        backend.sync(*(multiply(rows[:num_rows]) for multiply in products))

    return curve_dict(fastest_times(forward, ROWS * _TURNS, seconds=time.seconds_left), count)


def _count(num_bytes: int) -> int:
    """Return how many matrices of this size take turns; on a CPU one takes long enough."""
    return 1 if backend.is_cpu() else min(max(_BYTES // num_bytes, 1), _MOST_MATRICES)


def _product(bits: int, width: int, height: int) -> Callable[[mx.array], mx.array]:
    matrix = mx.random.normal((height, width)).astype(_DTYPE)
    if bits == 16:
        mx.eval(matrix)
        return lambda rows: rows @ matrix.T
    packed, scales, biases = mx.quantize(matrix, group_size=_GROUP_SIZE, bits=bits)
    mx.eval(packed, scales, biases)
    return lambda rows: mx.quantized_matmul(
        rows, packed, scales, biases, transpose=True, group_size=_GROUP_SIZE, bits=bits
    )
