"""A rank that is not the first: it joins, loads what rank 0 asks for, and ends when rank 0 ends."""

import faulthandler
from functools import partial
from os import PathLike
from typing import Any, NoReturn

import mlx.core as mx

from mlxspec.decoder.decoder import Decoder
from mlxspec.device import memory
from mlxspec.distributed.follower import Follower, Orders
from mlxspec.distributed.handshake import settings_of, weights_fingerprint
from mlxspec.distributed.probe import answer_probe
from mlxspec.distributed.rendezvous import JOIN_S, initialised, join_rank_0
from mlxspec.distributed.sharding import load_shared
from mlxspec.errors import MlxspecError
from mlxspec.kv.cache import make_cache
from mlxspec.loading import LoadedModel
from mlxspec.loading.fetch.sources import find_source
from mlxspec.params import Options


def follow(
    group: mx.distributed.Group,
    source: str | PathLike[str] | None = None,
    own: Options | None = None,
) -> NoReturn:
    """Do what rank 0 orders until it ends; then the process ends.

    `source` and `own` are the model and the options that this rank was given; without options it
    takes both from rank 0. `group` must not be that of rank 0.
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
        wire = self._orders.wire
        try:
            found = find_source(source)
        except MlxspecError as error:  # the user can choose another model
            wire.send(missing=str(error))
            return
        wire.send(weights=weights_fingerprint(found.path), **settings_of(options))
        if not self._may_go():
            return
        loaded = load_shared(found.path, options, self._group)
        self._follower = Follower(
            partial(_decoder, loaded, options), partial(answer_probe, self._group)
        )
        wire.send(nbytes=loaded.model.nbytes)

    def _may_go(self) -> bool:
        """Wait for rank 0's decision, which depends on the answers of all ranks."""
        message = self._orders.next()
        return isinstance(message, dict) and bool(message.get("go"))


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
    # MLX holds the interpreter while it waits, so no thread could end this process with rank 0.
    faulthandler.dump_traceback_later(2 * JOIN_S, exit=True)
    group = initialised(name)
    faulthandler.cancel_dump_traceback_later()
    follow(group)
