"""The ranks of this process, seen from rank 0: joined once, then asked to load models in turn.

MLX joins a group only once per process. So the ranks stay until this process ends, and closing an
engine only frees their memory.
"""

import atexit
import os
from contextlib import suppress
from dataclasses import replace
from os import PathLike
from typing import Any

import mlx.core as mx

from mlxspec.device import backend
from mlxspec.distributed.decoder import ShardedDecoder, ShardedModel
from mlxspec.distributed.exchange import check_same, facts_of, gathered, seconds_of_a_sum, told
from mlxspec.distributed.orders import Orders
from mlxspec.distributed.processes import Processes, joined_group, read_hosts
from mlxspec.distributed.sharding import PIPELINE, load_shared
from mlxspec.errors import Progress, RankLostError, Say, UnsupportedOperationError
from mlxspec.loading import LoadedModel
from mlxspec.loading.fetch.sources import find_source
from mlxspec.params import Options

_SETTINGS = ("dtype", "port", "max_kv_size", "keep", "kv_bits")  # of forwards and caches


class Ranks:
    """The other ranks."""

    def __init__(self, group: mx.distributed.Group, processes: Processes | None = None) -> None:
        """Lead a group; `processes` are its other ranks, unless another program started them."""
        self.group = group
        self.sizes: list[int] = []  # bytes of the loaded model's weights, per rank
        self.orders = Orders(self._send, processes)
        self._processes = processes
        self._is_used = False
        atexit.register(self._end)

    def load(
        self,
        source: str | PathLike[str] | None,
        options: Options,
        *,
        on_progress: Progress | None = None,
        say: Say = lambda line: None,
    ) -> LoadedModel:
        """Load a model on all ranks; arguments as in `api.prepare`.

        After a ModelNotFoundError, on any rank, they wait for another one.
        """
        if self._is_used:
            raise UnsupportedOperationError(
                "another engine of this process stands on these ranks: close it first"
            )
        found = find_source(source, on_progress)
        settings = {name: getattr(options, name) for name in _SETTINGS}
        settings["adapter"] = None if options.adapter is None else str(options.adapter)
        with self.orders.together("find", None if source is None else str(source), settings):
            facts = gathered(facts_of(found.path), self.group)
        check_same(facts)
        with self.orders.together("load"):
            loaded, self.sizes = load_shared(found.path, options, self.group, on_progress, say)
        self._is_used = True
        has_all_layers = PIPELINE not in loaded.shared
        # The name and commit that the user asked for, not those of its folder.
        return replace(
            loaded,
            model=ShardedModel(loaded.model, self.orders, has_all_layers=has_all_layers),
            name=found.name,
            revision=found.revision,
            make_decoder=ShardedDecoder,
            free=self._free,
        )

    def seconds_of_a_sum(self, numbers: int) -> float:
        """Time sums of this many float32 numbers over all ranks; return the median."""
        with self.orders.together("time_sums", numbers):
            return seconds_of_a_sum(numbers, self.group)

    def _send(self, orders: list[Any]) -> None:
        if self._processes is not None:
            self._processes.announce()
        told(orders, self.group)

    def _free(self) -> None:
        self._is_used = False
        self.orders.later("free")  # not now: garbage collection may call this within an order

    def _end(self) -> None:
        if self._processes is not None:
            self._processes.end()
            return
        with suppress(RankLostError), self.orders.together("end"):
            pass


_joined: Ranks | None = None
_hosts = ""


def start(hosts: str) -> Ranks:
    """Start the ranks that a user named, or return those that already run."""
    global _joined, _hosts
    if _joined is not None:
        if hosts != _hosts:
            raise UnsupportedOperationError(
                f"this process has joined the ranks of --hosts {_hosts}, and MLX joins once: start "
                "mlxspec again for others"
            )
        return _joined
    named = read_hosts(hosts)
    backend.check()
    processes = Processes(named)
    os.environ.update(processes.environment)
    try:
        group = joined_group(named.backend, str(processes.log))
    except BaseException:
        processes.end()
        raise
    finally:
        for name in processes.environment:
            os.environ.pop(name, None)
    _joined, _hosts = Ranks(group, processes), hosts
    return _joined


def joined(group: mx.distributed.Group) -> Ranks:
    """Return the ranks of a group that another program has started, on rank 0."""
    global _joined, _hosts
    if _joined is None:
        _joined, _hosts = Ranks(group), f"(a group of {group.size()})"
    return _joined
