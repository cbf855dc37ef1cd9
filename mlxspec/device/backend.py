"""Prepares the process before MLX is imported, and describes the machine.

Importing any module of mlxspec runs `prepare` first. On Linux it gives MLX a fast BLAS, which only
works before `mlx.core` is imported (`blas.py`; `MLXSPEC_BLAS=stock|auto|PATH` chooses it). On macOS
it lets Metal's command buffers hold more operations, because small models have many short ones.
Everywhere it keeps all bits of float32 in products. Nothing here imports MLX at import time, so
recorded replies can be shown without MLX.
"""

import importlib.util
import os
import platform
import sys
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from mlxspec.device.blas import STOCK_BLAS, blas_threads, choose_blas, loaded_blas
from mlxspec.errors import MlxspecError

GB = 1e9
_OPS_PER_BUFFER = "200"
_MOST_SPLIT_CORES = 2
_SHORT_FLOATS = "MLX_ENABLE_TF32"
"""Lets a GPU multiply two and more rows of float32 with 10 bits of each number, one row with 23: a
verified draft then has other logits than plain decoding. It is MLX's default."""


class BlasChoiceError(MlxspecError, ValueError):
    """`MLXSPEC_BLAS` names a library that cannot be used."""


@dataclass
class _State:
    prepared: bool = False
    problem: str = ""
    late: bool = False
    host_syncs: int = 0


_state = _State()


@dataclass(frozen=True)
class DeviceFacts:
    """The machine and the libraries that a model runs on, as found at run time.

    `device` is a name such as "Apple M3 Pro" or "AMD EPYC"; "" stands for what is not there.
    """

    device: str
    backend: Literal["cpu", "metal", "cuda", "none"]  # none: MLX cannot be imported
    blas: str  # what MLX's matrix products call on a CPU
    is_stock_blas: bool  # the slow reference BLAS of the MLX wheel
    memory_gb: float
    cores: int  # that this process may use
    system: str
    python: str
    mlx: str
    notes: tuple[str, ...] = ()  # settings that have no effect, one sentence each


def prepare() -> None:
    """Set the process up for MLX, once; `check` raises a problem that is found here."""
    if _state.prepared:
        return
    _state.prepared = True
    _state.late = "mlx.core" in sys.modules
    os.environ.setdefault(_SHORT_FLOATS, "0")
    os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")  # only its tokenizers are used
    if sys.platform == "darwin":
        # Their bytes stay as MLX sets them: what a buffer uses is freed only when it ends, and a
        # prefill would need gigabytes more.
        os.environ.setdefault("MLX_MAX_OPS_PER_BUFFER", _OPS_PER_BUFFER)
    elif not _state.late:
        _state.problem = choose_blas(os.environ.get("MLXSPEC_BLAS", "auto"))


def check_early() -> None:
    """Raise the problems that show without importing MLX, which is slow.

    Raises:
        BlasChoiceError: `MLXSPEC_BLAS` names a library that cannot be used.
        MlxspecError: MLX is not installed.
    """
    if _state.problem:
        raise BlasChoiceError(_state.problem)
    if importlib.util.find_spec("mlx") is None:
        raise MlxspecError(_missing("it is not installed"))


def check() -> None:
    """Raise what `check_early` raises, and MlxspecError if MLX is installed only in part."""
    check_early()
    try:
        import mlx.core  # noqa: F401
    except ImportError as error:
        raise MlxspecError(_missing(str(error))) from error


def _missing(reason: str) -> str:
    from mlxspec.device import machine_check  # imported here: only this error needs it

    problem = machine_check.problem(machine_check.machine_facts())
    if problem:
        return f"MLX cannot be imported, so no model can run; recorded replies can: {problem}"
    return (
        f"MLX cannot be imported, so no model can run ({reason}); recorded replies can: "
        "pip install 'mlx[cpu]' on Linux, mlx on macOS"
    )


def facts() -> DeviceFacts:
    """Return the facts of this machine; it imports MLX if that is installed."""
    device, backend = _device()
    blas = loaded_blas() if backend == "cpu" else ""
    is_stock = blas == STOCK_BLAS
    notes = [_state.problem] if _state.problem else []
    if _state.late and is_stock:
        notes.append(
            "mlx was imported before mlxspec, so the BLAS bundled with it is in use: "
            "import mlxspec first"
        )
    if backend not in ("cpu", "none") and os.environ.get(_SHORT_FLOATS) != "0":
        notes.append(
            f"{_SHORT_FLOATS} is set, so a GPU may round float32 in drafted rounds more than in "
            "plain ones, and replies may differ: unset it"
        )
    return DeviceFacts(
        device=device,
        backend=backend,
        blas=blas,
        is_stock_blas=is_stock,
        memory_gb=memory_gb(),
        cores=_cores(),
        system=f"{platform.system()} {platform.release()} {platform.machine()}",
        python=platform.python_version(),
        mlx=_version("mlx"),
        notes=tuple(notes),
    )


def _device() -> tuple[str, Literal["cpu", "metal", "cuda", "none"]]:
    try:
        import mlx.core as mx
    except ImportError:
        return platform.machine(), "none"
    device = mx.default_device()
    name = str(mx.device_info(device).get("device_name", platform.machine()))
    if device.type == mx.DeviceType.cpu:
        return name, "cpu"
    return name, "metal" if mx.metal.is_available() else "cuda"


def is_cpu() -> bool:
    """Return whether MLX computes on the CPU."""
    return _device()[1] == "cpu"


def keeps_weights_as_stored() -> bool:
    """Return whether products use weights as they are stored: quantised, and in their dtype.

    On a CPU all weights become float32, which is fastest there: MLX's CPU kernel for quantised
    products takes n times as long for n rows.
    """
    return not is_cpu()


@cache
def lacks_accelerate() -> bool:
    """Return whether MLX computes on a CPU without Apple's libraries.

    MLX then computes exponentials one by one, and calls a general BLAS for products.
    """
    return is_cpu() and sys.platform != "darwin"


def verifies_on_host() -> bool:
    """Return whether the host computes the probabilities of a draft's nodes.

    It does where NumPy is faster than MLX: four times on an x86 CPU. Since it waits for no copy
    there, it can compute only the nodes that it needs.
    """
    return lacks_accelerate()


def num_split_cores() -> int:
    """Return how many cores share the products (see `core_split.py`); 0 for no split.

    It is two if there are two cores and a BLAS that cannot or need not use both, and one if
    OpenBLAS is set to one thread. With more cores only the BLAS uses them: no split was measured
    there.
    """
    if not lacks_accelerate():
        return 0
    if loaded_blas() == STOCK_BLAS:
        return min(_cores(), _MOST_SPLIT_CORES)
    threads = blas_threads()
    return threads if threads <= _MOST_SPLIT_CORES else 0


def memory_gb() -> float:
    """Return the memory of the machine in GB (1e9 bytes)."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / GB


def _cores() -> int:
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _version(package: str) -> str:
    from importlib.metadata import PackageNotFoundError, version  # slow to import

    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def sync(*arrays: Any) -> None:
    """Evaluate arrays and wait for the device; a round calls this once and waits nowhere else."""
    import mlx.core as mx

    _state.host_syncs += 1
    mx.eval(*arrays)


def values(array: Any) -> Any:
    """Return an evaluated array as Python numbers, in nested lists if it has axes."""
    return array.tolist()


def on_host(array: Any) -> Any:
    """Return an evaluated array as a NumPy array, without a copy on a CPU."""
    import numpy as np

    return np.asarray(array)


def host_syncs() -> int:
    """Return the number of times that `sync` has waited for the device in this process."""
    return _state.host_syncs
