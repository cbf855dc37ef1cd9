"""The memory of models: its limits, its peak, and large weights wired against swapping.

A Mac's GPU recommends a *working set*: about two thirds of the memory, which the system also uses.
A process that needs more dies in a way that Python cannot catch, so sizes are compared with it
before anything is loaded. Wired memory cannot be swapped out, which leaves less to other programs:
under load that has brought down whole machines. So only weights are wired, and only if they are
large enough to be swapped out at all. The limit changes when an engine is made or closed, never
during a reply.
"""

import ctypes
import os
import platform
from dataclasses import dataclass, field
from typing import Protocol
from weakref import WeakSet

from mlxspec.device import backend
from mlxspec.errors import MlxspecError

_WIRED_FROM = 0.5  # of the working set: smaller weights are hardly ever swapped out
_MOST_WIRED = 0.6  # of the memory: the system needs the rest
_FIRST_MACOS = 15  # earlier versions have no such limit
_CACHE_SHARE = 8  # freed buffers may hold 1/8 of the working set


class WiredChoiceError(MlxspecError, ValueError):
    """`MLXSPEC_WIRED` is neither 0 nor 1."""


class Weights(Protocol):
    """A model, of which wiring needs only the size in bytes."""

    @property
    def nbytes(self) -> int: ...


class Wired:
    """The share of one engine in the wired memory, as long as this object lives.

    It is made and released in a turn of the device, so no reply computes then.
    """

    def __init__(self, model: Weights) -> None:
        """Wire the evaluated weights of a model where that is safe and useful.

        A process has one limit, which covers the weights of all live engines; engines with the same
        model count once. The share of an engine that was dropped without `release` is released when
        the next one is made or closed.
        """
        self.model = model
        _process.parts.add(self)
        _set_limit()

    def release(self) -> None:
        """Release the share."""
        _process.parts.discard(self)
        _set_limit()


@dataclass
class _Process:
    parts: WeakSet[Wired] = field(default_factory=WeakSet)
    limit: int = 0  # bytes, the value set last


_process = _Process()


def wired_bytes(
    weight_bytes: int, *, working_set: int, memory: int, macos: str, setting: str
) -> int:
    """Return how many bytes to wire, given the weights of all engines and the sizes of the machine.

    `working_set` is 0 on a CPU, `macos` is "" elsewhere, and `setting` is that of `MLXSPEC_WIRED`:
    "0" wires nothing, "" and "1" wire large weights.
    """
    if setting not in ("", "0", "1"):
        raise WiredChoiceError(
            f"MLXSPEC_WIRED={setting!r} is neither 0, which wires no memory, nor 1, which wires "
            "large weights: set it to one of these, or leave it unset"
        )
    if setting == "0" or not macos or int(macos.split(".")[0]) < _FIRST_MACOS:
        return 0
    if weight_bytes <= _WIRED_FROM * working_set:
        return 0
    return min(weight_bytes, working_set, int(_MOST_WIRED * memory))


def _set_limit() -> None:
    # By id, so that engines with the same model count its weights once.
    weights = {id(part.model): part.model.nbytes for part in _process.parts}
    limit = wired_bytes(
        sum(weights.values()),
        working_set=working_set_bytes(),
        memory=int(backend.memory_gb() * backend.GB),
        macos=platform.mac_ver()[0],
        setting=os.environ.get("MLXSPEC_WIRED", ""),
    )
    if limit == _process.limit:
        return
    import mlx.core as mx

    mx.synchronize()  # nothing of this thread may run while it changes
    mx.set_wired_limit(limit)
    _process.limit = limit


def working_set_bytes() -> int:
    """Return the most bytes that the GPU recommends a process to use.

    It is 0 on a CPU, and if MLX is not installed or does not report it.
    """
    if backend.is_cpu():
        return 0
    try:
        import mlx.core as mx
    except ImportError:
        return 0
    return int(mx.device_info().get("max_recommended_working_set_size", 0))


def usable_gb() -> float:
    """Return the GB that models may use: the working set of a GPU, else the machine's memory."""
    return working_set_bytes() / backend.GB or backend.memory_gb()


def limit_memory() -> None:
    """Limit MLX to the working set, so that it waits there, and limit its cache of freed buffers.

    MLX's default for both is one and a half times the working set, which is all memory. A lower
    limit that was set before stays.
    """
    most = working_set_bytes()
    if most == 0:
        return
    import mlx.core as mx

    limits = (mx.set_memory_limit, most), (mx.set_cache_limit, most // _CACHE_SHARE)
    for set_limit, limit in limits:
        before = set_limit(limit)
        if before < limit:
            set_limit(before)


def peak_memory_gb(*, reset: bool = False) -> float:
    """Return the most memory that MLX has held since the last reset, in GB."""
    import mlx.core as mx

    peak = mx.get_peak_memory() / backend.GB
    if reset:
        mx.reset_peak_memory()
    return peak


def give_back_memory() -> None:
    """Return freed memory to the system: MLX caches freed buffers, and glibc freed pages."""
    import mlx.core as mx

    mx.clear_cache()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # only glibc has it
    if trim is not None:
        trim(0)
