"""The other ranks: a loop that does what rank 0 orders, and ends when rank 0 ends.

It waits for the next message in the kernel, which uses no processor time. A thread receives the
messages, so that the end of rank 0 ends this process at once, even during a collective.
"""

import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, NoReturn

import mlx.core as mx

from mlxspec.decoder.decoder import Decoder
from mlxspec.device.turns import device_turn
from mlxspec.distributed.orders import Kind, Order, unpacked
from mlxspec.distributed.wire import BEAT_S, Wire, WireError
from mlxspec.drafts.tree import DraftTree


class Orders:
    """The messages of rank 0, received by a thread; the process ends if rank 0 is gone."""

    def __init__(self, wire: Wire) -> None:
        self.wire = wire
        self._messages: SimpleQueue[dict[str, Any] | bytes] = SimpleQueue()
        for act in (self._receive, self._beat):
            threading.Thread(target=act, daemon=True).start()

    def next(self) -> dict[str, Any] | bytes:
        return self._messages.get()

    def fail(self, error: BaseException) -> NoReturn:
        """Report an error to rank 0, and end this process."""
        with suppress(WireError):
            self.wire.send(fault=f"{type(error).__name__}: {error}")
        os._exit(1)

    def _receive(self) -> None:
        with suppress(WireError):
            while True:
                self._messages.put(self.wire.receive())
        os._exit(0)  # the main thread may wait for something that will never come

    def _beat(self) -> None:
        while True:
            time.sleep(BEAT_S)
            self.wire.beat()


class Follower:
    """Decoders that mirror those of rank 0."""

    def __init__(
        self, make_decoder: Callable[[], Decoder], answer_probe: Callable[[int, int], None]
    ) -> None:
        """Start without a decoder.

        `make_decoder` returns a decoder with an empty cache that has rank 0's settings.
        `answer_probe` gets the numbers per sum and the count of sums.
        """
        self._make_decoder = make_decoder
        self._answer_probe = answer_probe
        self._decoders: dict[int, Decoder] = {}

    def obey(self, message: bytes) -> None:
        """Do what a message orders; forwards are computed when this returns."""
        with device_turn():
            for order in unpacked(message):
                self._do(order)

    def _do(self, order: Order) -> None:
        numbers = order.numbers
        if order.kind is Kind.OPEN:
            self._decoders[order.decoder] = self._make_decoder()
            return
        if order.kind is Kind.CLOSE:
            self._decoders.pop(order.decoder, None)  # it may belong to an earlier engine
            return
        if order.kind is Kind.PROBE:
            self._answer_probe(*numbers)
            return
        decoder = self._decoders[order.decoder]
        match order.kind:
            case Kind.RESET:
                decoder.reset()
            case Kind.OBSERVE:
                decoder.observe(numbers)
            case Kind.ROLLBACK:
                decoder.rollback_to(*numbers)
            case Kind.COMMIT:
                decoder.commit(numbers)
                mx.eval(decoder.cache.arrays)  # here while rank 0 drafts, not in the next forward
            case Kind.COMMIT_CHAIN:
                decoder.commit_chain(numbers)
            case _:
                _forward(decoder, order)


def _forward(decoder: Decoder, order: Order) -> None:
    numbers = order.numbers
    match order.kind:
        case Kind.TREE | Kind.LOGITS_OF_TREE:
            half = len(numbers) // 2
            tokens, parents = (
                mx.array(part, mx.int32) for part in (numbers[:half], numbers[half:])
            )
            mx.eval(decoder.forward_tree(DraftTree(tokens, parents)))
            if order.kind is Kind.LOGITS_OF_TREE:
                decoder.commit([])
        case Kind.LOWER:
            mx.eval(decoder.extend_lower(*numbers))
        case Kind.CHAIN:
            mx.eval(decoder.extend_chain(mx.array(numbers, mx.int32)))
        case Kind.LAST:
            mx.eval(decoder.last_hidden_state())
        case _:
            raise ValueError(f"{order.kind!r} is no order for a decoder")
