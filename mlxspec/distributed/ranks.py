"""The ranks of this process: joined once, then asked to load one model after the other.

MLX joins a group once in the life of a process. So the ranks stay until this process ends, and a
closed engine frees their memory alone.
"""

import atexit
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any, NoReturn

import mlx.core as mx

from mlxspec.device import backend, memory
from mlxspec.distributed.decoder import ShardedDecoder
from mlxspec.distributed.follower import Follower, Orders
from mlxspec.distributed.handshake import check_same, settings_of, weights_fingerprint
from mlxspec.distributed.hosts import read_hosts
from mlxspec.distributed.link import Link, Worker, attended
from mlxspec.distributed.model import ShardedModel
from mlxspec.distributed.probe import answer_probe
from mlxspec.distributed.processes import Processes
from mlxspec.distributed.rendezvous import accept_ranks, join_rank_0
from mlxspec.distributed.sharding import PIPELINE, sharing
from mlxspec.errors import MlxspecError, RankLostError, UnsupportedOperationError
from mlxspec.kv.cache import make_cache
from mlxspec.loading import LoadedModel, ProgressCallback, Room, load_model
from mlxspec.loading.fetch.sources import find_source
from mlxspec.loading.room import Say
from mlxspec.params import Options
from mlxspec.target.decoder import Decoder

_COPY = "give all machines the same files of the model, and the same settings"


class Ranks:
    """The other ranks, as rank 0 has them.

    Attributes:
        link: The connections to them.
        group: The group of `mx.distributed`.
        sizes: Bytes of the weights that each rank holds of the loaded model.
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
        # The name and commit of what the user asked for, not of its folder.
        return replace(
            loaded,
            model=model,
            name=found.name,
            revision=found.revision,
            make_decoder=partial(ShardedDecoder, link=self.link),
            free=self.free,
        )

    def free(self) -> None:
        """Let the other ranks free the memory of the model."""
        self._is_used = False
        with suppress(RankLostError):
            self.link.tell(free=True)


def load_shared(
    path: Path,
    options: Options,
    group: mx.distributed.Group,
    on_progress: ProgressCallback | None = None,
    say: Say = lambda line: None,
) -> LoadedModel:
    """Load the part of this rank; all ranks do so at the same time."""
    return load_model(
        path,
        dtype=options.dtype,
        port=options.port,
        adapter=options.adapter,
        room=Room(options.max_kv_size, options.kv_bits),
        sharing=sharing(group),
        on_progress=on_progress,
        say=say,
    )


# ---- rank 0 ------------------------------------------------------------------------------------

_joined: Ranks | None = None
_hosts = ""


def start(hosts: str) -> Ranks:
    """Start the ranks that a user named, or return those that run already.

    Raises:
        MlxspecError: The hosts are not understood, or others run already.
        RankLostError: A rank cannot be started.
    """
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
    atexit.register(processes.end)
    kept = {name: os.environ.get(name) for name in processes.environment}
    os.environ.update(processes.environment)
    try:
        # MLX holds the interpreter while it joins: a rank that cannot start is found out before.
        processes.wait_for_all()
        group = _initialised(named.backend)
        _joined = attended(Worker(), lambda: _join(group, processes.end), processes.check)
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
    """Return the ranks of a group that something else has started, on rank 0."""
    global _joined, _hosts
    if _joined is None:
        _joined, _hosts = _join(group, lambda: None), f"(a group of {group.size()})"
    return _joined


def _join(group: mx.distributed.Group, at_loss: Callable[[], None]) -> Ranks:
    link = Link(accept_ranks(group), at_loss)
    atexit.register(_leave, link)
    return Ranks(group, link)


def _leave(link: Link) -> None:
    """End the other ranks; where one was lost, end this process without MLX.

    A collective that waits for ever would abort the process, or hold it, while MLX is taken down.
    """
    if not link.reason:
        link.close()
        return
    atexit.unregister(_leave)
    atexit._run_exitfuncs()  # those that this end would skip: what was learned is saved there
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):
            stream.flush()
    os._exit(1)


def _initialised(name: str) -> mx.distributed.Group:
    try:
        return mx.distributed.init(strict=True, backend=name.removesuffix("-ring"))
    except RuntimeError as error:
        raise MlxspecError(f"MLX cannot join the ranks over {name}: {error}") from error


# ---- the other ranks ---------------------------------------------------------------------------


def follow(
    group: mx.distributed.Group,
    source: str | PathLike[str] | None = None,
    own: Options | None = None,
) -> NoReturn:
    """Do what rank 0 orders until it ends; then the process ends.

    Args:
        group: The group, of which this is not rank 0.
        source: The model that this rank was asked for.
        own: The options that this rank was asked for; None takes those of rank 0.
    """
    orders = Orders(join_rank_0(group))
    try:
        _Following(orders, group, source, own).run()
    except Exception as error:
        orders.fail(error)


class _Following:
    def __init__(
        self,
        orders: Orders,
        group: mx.distributed.Group,
        source: str | PathLike[str] | None,
        own: Options | None,
    ) -> None:
        self._orders, self._group = orders, group
        self._source, self._own = source, own
        self._follower: Follower | None = None

    def run(self) -> NoReturn:
        while True:
            message = self._orders.next()
            if isinstance(message, bytes):
                assert self._follower is not None, "an order before a model was loaded"
                self._follower.obey(message)
            elif "load" in message:
                self._load(message["load"])
            elif "free" in message:
                self._follower = None
                memory.give_back_memory()
            del message

    def _load(self, asked: dict[str, Any]) -> None:
        self._follower = None
        source, adapter = asked.pop("source"), asked.pop("adapter")
        if self._own is not None:
            options, source = self._own, self._source
        else:
            options = Options(adapter=adapter, **asked)
        found = find_source(source)
        wire = self._orders.wire
        wire.send(weights=weights_fingerprint(found.path), **settings_of(options))
        if "go" not in (self._orders.next() or {}):
            return
        loaded = load_shared(found.path, options, self._group)
        self._follower = Follower(
            partial(_decoder, loaded, options), partial(answer_probe, self._group)
        )
        wire.send(nbytes=loaded.model.nbytes)


def _decoder(loaded: LoadedModel, options: Options) -> Decoder:
    cache = make_cache(
        loaded.config,
        max_kv_size=options.max_kv_size,
        keep=options.keep,
        kv_bits=options.kv_bits,
    )
    return Decoder(loaded.model, cache)


def run_rank(name: str) -> NoReturn:
    """Join the ranks over a back end and do what rank 0 orders."""
    follow(_initialised(name))
