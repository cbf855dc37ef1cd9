"""What speeds depend on here, and how fast weights are read, which bounds plain decoding."""

import os
import time

import mlx.core as mx

from mlxspec.device import backend, core_split, products
from mlxspec.device.turns import device_turn

_ROWS, _COLUMNS = 16384, 4096
"""256 MB of float32: more than any processor cache holds."""
_REPEATS = 8
_CHOOSE_KERNELS = ("MLX_ENABLE_TF32", "MLX_SDPA_BLOCKS")
"""Settings of MLX in the environment with which other kernels compute; 0 is what counts unset."""
_BUSY = 1.5  # threads that want a core, per core; MLX itself is one


def is_busy() -> bool:
    """Return whether other programs keep the cores, so that no figure of speed counts."""
    return os.getloadavg()[0] > _BUSY * backend.facts().cores


def load_words() -> str:
    """Return the load of the last minute: the number of threads that wanted a core."""
    return f"load {os.getloadavg()[0]:.0f}"


def machine_key() -> str:
    """Return what speed and rounding depend on besides the model: device, cores and libraries."""
    facts, threads = backend.facts(), os.environ.get("OPENBLAS_NUM_THREADS")
    library = (facts.blas or facts.backend) + (f" of {threads} threads" if threads else "")
    shared = f", split among {core_split.count()}" if core_split.count() else ""
    changed = [name for name in _CHOOSE_KERNELS if os.environ.get(name, "0") != "0"]
    others = "".join(f", {name}={os.environ[name]}" for name in changed)
    return f"{facts.device}, {facts.cores} cores{shared}, {library}, mlx {facts.mlx}{others}"


def measure_bandwidth() -> float:
    """Return GB/s at which the product of a row and a large matrix reads that matrix."""
    with device_turn():
        layer, row = products.Linear(1, 1, bias=False), mx.ones((1, 1, _COLUMNS))
        layer.weight = mx.ones((_ROWS, _COLUMNS))
        mx.eval(layer.weight, row)
        fastest = min(_seconds(layer, row) for _ in range(_REPEATS))
        return float(layer.weight.nbytes / fastest / 1e9)


def _seconds(layer: products.Linear, row: mx.array) -> float:
    start = time.perf_counter()
    mx.eval(products.product(layer, row))
    return time.perf_counter() - start
