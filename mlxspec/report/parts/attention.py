"""Measures the cost of attention of 1 to 32 rows with an array as mask, as for a draft tree.

MLX chooses a kernel by the number of rows, the mask and the head size, so the same rows are also
timed without a mask.
"""

from collections.abc import Iterator
from itertools import product

import mlx.core as mx

from mlxspec.budget.cost import fastest_times
from mlxspec.device import backend
from mlxspec.device.ops import attend
from mlxspec.report.allowance import Allowance, Finding, curve_dict
from mlxspec.report.shapes import HEADS, KEYS, ROWS, attention_name

_LAYERS = 4  # layers with their own keys and values, which take turns
_TURNS = 8


def measure(time: Allowance) -> Iterator[Finding]:
    """Yield the curve of each shape of heads and number of keys, with and without a mask."""
    yield "dtype", str(_dtype()).removeprefix("mlx.core.")
    cases = list(product(HEADS, KEYS, (True, False)))
    for number, (heads, num_keys, has_mask) in enumerate(cases):
        if time.is_over:
            return
        share = time.share(len(cases) - number)
        yield (
            attention_name(heads, num_keys, has_mask=has_mask),
            _curve(heads, num_keys, has_mask, share),
        )


def _curve(heads: str, num_keys: int, has_mask: bool, time: Allowance) -> dict[str, list[float]]:
    n_heads, n_kv_heads, head_dim = HEADS[heads]
    most = max(ROWS)
    queries = _noise(n_heads, most, head_dim)
    layers = [
        (_noise(n_kv_heads, num_keys, head_dim), _noise(n_kv_heads, num_keys, head_dim))
        for _ in range(_LAYERS)
    ]
    shown = mx.arange(num_keys - most, num_keys)[:, None] >= mx.arange(num_keys)
    mx.eval(queries, layers, shown)

    def forward(num_rows: int) -> None:
        mask = shown[:num_rows] if has_mask else None
        asked, scale = queries[:, :, :num_rows], head_dim**-0.5
        backend.sync(*(attend(asked, k, v, scale=scale, mask=mask) for k, v in layers))

    return curve_dict(fastest_times(forward, ROWS * _TURNS, seconds=time.seconds_left), _LAYERS)


def _noise(*shape: int) -> mx.array:
    return mx.random.normal((1, *shape)).astype(_dtype())


def _dtype() -> mx.Dtype:
    return mx.float32 if backend.is_cpu() else mx.float16  # the dtypes that models use
