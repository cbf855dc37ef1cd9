"""How much memory models may take, and what of it is kept from being swapped out.

A Mac's GPU recommends a *working set*: about two thirds of the memory, which the system uses as
well. A process that needs more ends in a way that Python cannot catch, so sizes are compared with
it before anything is read. Wiring keeps weights in memory, and all others out of it: under load
it has brought down whole machines. So weights alone are wired, only where they are large enough to
be swapped out at all, and the limit changes when an engine is made or closed, never during a reply.
"""

import os
import platform
from dataclasses import dataclass, field
from threading import Lock
from typing import Protocol
from weakref import WeakSet

from mlxspec.device import backend
from mlxspec.errors import MlxspecError

_WIRED_FROM = 0.5  # of the working set: what is smaller is hardly ever swapped out
_MOST_WIRED = 0.6  # of the memory: the system needs the rest
_FIRST_MACOS = 15  # earlier ones have no such limit
_CACHE_SHARE = 8  # of the working set, freed buffers may hold one part in so many


class WiredChoiceError(MlxspecError, ValueError):
    """`MLXSPEC_WIRED` says neither yes nor no."""


class Weights(Protocol):
    """What is wired: a model."""

    @property
    def nbytes(self) -> int:
        """Bytes of all parameters."""


class Wired:
    """The part that one engine has in what is wired; see `wire`.

    Attributes:
        model: Whose weights they are.
    """

    def __init__(self, model: Weights) -> None:
        self.model = model

    def release(self) -> None:
        """Give up the part; call it when no reply is being written."""
        with _process.lock:
            _process.parts.discard(self)
            _set_limit()


@dataclass
class _Process:
    parts: WeakSet[Wired] = field(default_factory=WeakSet)
    limit: int = 0  # bytes, as it was set last
    lock: Lock = field(default_factory=Lock)


_process = _Process()


def wire(model: Weights) -> Wired:
    """Keep the weights of a model in memory where that is wise; call it once per engine.

    The limit is the process's: it is made for the weights of all engines that are alive, those of
    several engines with one model counted once. An engine that is forgotten and was never closed
    gives up its part when the next one is made or closed.

    Args:
        model: Its weights are evaluated.

    Returns:
        The part, to be held as long as the engine lives.

    Raises:
        WiredChoiceError: `MLXSPEC_WIRED` is set to something other than 0 and 1.
    """
    part = Wired(model)
    with _process.lock:
        _process.parts.add(part)
        _set_limit()
    return part


def wired_bytes(
    weight_bytes: int, *, working_set: int, memory: int, macos: str, setting: str
) -> int:
    """Return how many bytes are to be wired.

    Args:
        weight_bytes: Bytes of the weights of all engines.
        working_set: Bytes that the GPU recommends at most; 0 on a CPU.
        memory: Bytes of the machine.
        macos: Version of macOS; "" elsewhere.
        setting: What `MLXSPEC_WIRED` says: "0" for nothing; "" or "1" for what is wise.

    Raises:
        WiredChoiceError: `setting` is something else.
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
    """Return the bytes that the GPU recommends a process to use at most; 0 where it does not say.

    That is so on a CPU, and where MLX is not installed.
    """
    if backend.is_cpu():
        return 0
    try:
        import mlx.core as mx
    except ImportError:
        return 0
    return int(mx.device_info().get("max_recommended_working_set_size", 0))


def usable_gb() -> float:
    """Return the GB that models may take: the working set of a GPU, else the machine's memory."""
    return working_set_bytes() / backend.GB or backend.memory_gb()


def limit_memory() -> None:
    """Let MLX wait rather than pass the working set, and keep few buffers that were freed.

    By itself it goes on to one and a half times the working set, which is all memory there is, and
    keeps freed buffers up to the same size. Lower limits that were set before stay.
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
