"""The ranks of this process: joined once, then asked to load one model after the other.

MLX joins a group only once per process. So the ranks stay until this process ends, and closing an
engine only frees their memory.
"""

import atexit
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from os import PathLike
from typing import Any, NoReturn

import mlx.core as mx

from mlxspec.device import backend
from mlxspec.distributed.decoder import ShardedDecoder
from mlxspec.distributed.handshake import check_same, settings_of, weights_fingerprint
from mlxspec.distributed.hosts import read_hosts
from mlxspec.distributed.link import Link, Worker, attended
from mlxspec.distributed.model import ShardedModel
from mlxspec.distributed.processes import Processes
from mlxspec.distributed.rendezvous import (
    JOIN_S,
    accept_ranks,
    initialised,
    not_all_within,
)
from mlxspec.distributed.sharding import PIPELINE, load_shared
from mlxspec.errors import ModelNotFoundError, RankLostError, UnsupportedOperationError
from mlxspec.loading import LoadedModel, ProgressCallback
from mlxspec.loading.fetch.sources import find_source
from mlxspec.params import Options
from mlxspec.progress import Say

_COPY = "give all machines the same files of the model, and the same settings"


class Ranks:
    """The other ranks, seen from rank 0.

    Attributes:
        link: The connections to them.
        sizes: Bytes of the loaded model's weights, per rank.
    """

    def __init__(self, group: mx.distributed.Group, link: Link) -> None:
        self.group = group
        self.link = link
        self.sizes: list[int] = []
        self._is_used = False

    def load(
        self,
        source: str | PathLike[str] | None,
        options: Options,
        *,
        on_progress: ProgressCallback | None = None,
        say: Say = lambda line: None,
    ) -> LoadedModel:
        """Load a model on all ranks; arguments as in `api.prepare`.

        Raises:
            ModelNotFoundError: A rank does not have the model; the ranks wait for another one.
            RankLostError: A rank is lost, or has other weights or settings.
            UnsupportedOperationError: Another engine uses the ranks.
        """
        if self._is_used:
            raise UnsupportedOperationError(
                "another engine of this process stands on these ranks: close it first"
            )
        found = find_source(source, on_progress)
        given = None if source is None else str(source)
        settings = settings_of(options)
        adapter = None if options.adapter is None else str(options.adapter)
        self.link.forget()
        self.link.tell(load={"source": given, "adapter": adapter, **settings})
        facts = {**settings, "weights": weights_fingerprint(found.path)}
        answers = self.link.answers()
        if missing := _missing(answers):
            self.link.tell(go=False)
            raise ModelNotFoundError(missing)
        try:
            check_same(facts, answers, _COPY)
        except RankLostError:
            self.link.close()
            raise
        self.link.tell(go=True)
        loaded = self.link.attend(
            lambda: load_shared(found.path, options, self.group, on_progress, say)
        )
        self.sizes = [loaded.model.nbytes, *(one["nbytes"] for one in self.link.answers())]
        self._is_used = True
        model = ShardedModel(loaded.model, has_all_layers=PIPELINE not in loaded.shared)
        # The name and commit that the user asked for, not those of its folder.
        return replace(
            loaded,
            model=model,
            name=found.name,
            revision=found.revision,
            make_decoder=partial(ShardedDecoder, link=self.link),
            free=self.free,
        )

    def free(self) -> None:
        self._is_used = False
        with suppress(RankLostError):
            self.link.tell(free=True)


def _missing(answers: Sequence[Mapping[str, Any]]) -> str:
    """Return which of ranks 1, 2, ... do not find the model, and why; "" if all do."""
    reasons = [
        f"rank {rank} does not find the model: {facts['missing']}"
        for rank, facts in enumerate(answers, 1)
        if "missing" in facts
    ]
    return "; ".join(reasons)


_joined: Ranks | None = None
_hosts = ""
_is_spent = False  # MLX has joined ranks that are gone


def start(hosts: str) -> Ranks:
    """Start the ranks that a user named, or return those that already run.

    Raises:
        MlxspecError: The hosts are not understood, or others already run.
        RankLostError: A rank cannot be started.
    """
    global _joined, _hosts, _is_spent
    if _joined is not None:
        if hosts != _hosts:
            raise UnsupportedOperationError(
                f"this process has joined the ranks of --hosts {_hosts}, and MLX joins once: start "
                "mlxspec again for others"
            )
        return _joined
    if _is_spent:
        raise RankLostError(
            "the ranks that this process has joined are lost, and MLX joins once: start mlxspec "
            "again"
        )
    named = read_hosts(hosts)
    backend.check()
    processes = Processes(named)
    atexit.register(processes.end)
    kept = {name: os.environ.get(name) for name in processes.environment}
    os.environ.update(processes.environment)
    try:
        # MLX holds the interpreter while it joins, so a rank that cannot start must show before.
        processes.wait_for_all()
        with processes.joining(JOIN_S):
            group = initialised(named.backend)
            _is_spent = True
        _joined, _is_spent = _join(group, processes.end, processes.check), False
    except BaseException:
        processes.end()
        raise
    finally:
        for name, value in kept.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
    _hosts = hosts
    return _joined


def joined(group: mx.distributed.Group) -> Ranks:
    """Return the ranks of a group that another program has started, on rank 0."""
    global _joined, _hosts
    if _joined is None:
        _joined, _hosts = _join(group), f"(a group of {group.size()})"
    return _joined


def _join(
    group: mx.distributed.Group,
    at_loss: Callable[[], None] = lambda: None,
    check: Callable[[], None] = lambda: None,
) -> Ranks:
    end = time.monotonic() + JOIN_S

    def check_all() -> None:
        check()
        if time.monotonic() > end:
            raise RankLostError(not_all_within(JOIN_S))

    try:
        wires = attended(Worker(), lambda: accept_ranks(group), check_all)
    except (RankLostError, RuntimeError) as error:
        atexit.register(_end_without_mlx)
        check()  # the reason, where there is one
        raise RankLostError(f"the ranks cannot join: {error}") from error
    link = Link(wires, at_loss)
    atexit.register(_leave, link)
    return Ranks(group, link)


def _leave(link: Link) -> None:
    """End the other ranks; if one was lost, end this process without MLX."""
    if link.reason:
        _end_without_mlx()
    link.close()


def _end_without_mlx() -> NoReturn:
    """End this process, in which a collective waits forever.

    While MLX shuts down, such a collective would abort the process or block it.
    """
    atexit.unregister(_leave)
    atexit.unregister(_end_without_mlx)
    atexit._run_exitfuncs()  # `os._exit` would skip them, and they save what was learned
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):
            stream.flush()
    os._exit(1)
