"""The other ranks: a loop that does what rank 0 orders."""

import sys
from collections.abc import Callable, Sequence
from functools import partial
from os import PathLike
from typing import Any, NoReturn

import mlx.core as mx

from mlxspec.decoder.decoder import Decoder
from mlxspec.device import memory
from mlxspec.device.turns import device_turn
from mlxspec.distributed.decoder import call
from mlxspec.distributed.exchange import facts_of, gathered, seconds_of_a_sum, told
from mlxspec.distributed.sharding import load_shared
from mlxspec.errors import MlxspecError
from mlxspec.kv.cache import make_cache
from mlxspec.loading import LoadedModel
from mlxspec.params import Options


class Follower:
    """What another rank does: its public methods are the orders of rank 0."""

    make_decoder: Callable[[], Decoder]  # with an empty cache that has rank 0's settings

    def __init__(
        self, group: mx.distributed.Group, source: str | PathLike[str] | None = None
    ) -> None:
        """Start without a model; `source` is where this rank has it, if not where rank 0 does."""
        self.decoders: dict[int, Decoder] = {}  # by the number that rank 0 gave them
        self._group, self._own, self._asked = group, source, (source, Options())

    def obey(self, orders: Sequence[Sequence[Any]]) -> None:
        """Do what a message orders; forwards are computed when this returns."""
        with device_turn():
            for name, *arguments in orders:
                getattr(self, name)(*arguments)

    def find(self, source: str | None, settings: dict[str, Any]) -> None:
        """Tell the facts of a model that will be loaded with these settings, if they fit."""
        self._asked = source if self._own is None else self._own, Options(**settings)
        gathered(facts_of(self._asked[0]), self._group)

    def load(self) -> None:
        source, options = self._asked
        loaded, _ = load_shared(source, options, self._group)
        self.make_decoder = partial(_decoder, loaded, options)

    def free(self) -> None:
        self.decoders.clear()
        del self.make_decoder
        memory.give_back_memory()

    def open(self, number: int) -> None:
        self.decoders[number] = self.make_decoder()

    def close(self, number: int) -> None:
        self.decoders.pop(number, None)  # freed already with its model

    def call(self, number: int, method: str, *numbers: Any) -> None:
        call(self.decoders[number], method, *numbers)

    def time_sums(self, numbers: int) -> None:
        seconds_of_a_sum(numbers, self._group)

    def end(self) -> None:
        sys.exit()


def _decoder(loaded: LoadedModel, options: Options) -> Decoder:
    return Decoder(loaded.model, make_cache(loaded.config, options))


def follow(
    group: mx.distributed.Group,
    source: str | PathLike[str] | None = None,
    wait: Callable[[], object] = lambda: None,
) -> NoReturn:
    """Do what rank 0 orders until it ends; then this process ends.

    `wait` returns once rank 0 is about to send. MLX would wait for it with a busy processor.
    """
    follower = Follower(group, source)
    try:
        while True:
            wait()
            follower.obey(told(None, group))
    except (MlxspecError, RuntimeError) as error:  # RuntimeError: rank 0 has ended
        sys.exit(f"mlxspec: rank {group.rank()} ends: {error}")
