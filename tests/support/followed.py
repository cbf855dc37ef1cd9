"""Rank 0 and another rank in one process: a follower gets each message as it is sent.

Both have the whole of one tiny model, so no collective is needed, and both can be compared.
"""

import threading

from mlxspec.decoder.decoder import Decoder
from mlxspec.distributed.decoder import ShardedDecoder
from mlxspec.distributed.follower import Follower
from mlxspec.distributed.link import Link
from mlxspec.distributed.model import ShardedModel
from mlxspec.distributed.orders import Kind, Order
from mlxspec.distributed.wire import WireError
from mlxspec.drafters.none import NoDrafter
from mlxspec.engine.engine import Engine
from tests.support.tiny import ToyTokenizer, make_cache


class FollowedWire:
    """The wire to a follower in the same thread."""

    def __init__(self, follower):
        self._follower, self._ended = follower, threading.Event()

    def send_orders(self, message):
        self._follower.obey(message)

    def receive(self, silence_s=None):
        self._ended.wait()
        raise WireError("the process has ended")

    def close(self):
        self._ended.set()


class Followed:
    """An engine whose target is followed.

    Attributes:
        engine: The engine of rank 0.
        link: Its link.
        theirs: The decoders of the other rank, by their number.
    """

    def __init__(self, model, drafter=None, kind="full", tokenizer=None):
        def decoder():
            return Decoder(model, make_cache(model, kind))

        follower = Follower(decoder, lambda numbers, times: None)
        self.theirs = follower._decoders
        self.link = Link([FollowedWire(follower)])
        target = ShardedDecoder(
            ShardedModel(model, has_all_layers=True), make_cache(model, kind), self.link
        )
        tokenizer = tokenizer or ToyTokenizer(model.config.vocab_size)
        self.engine = Engine(target, drafter or NoDrafter(), tokenizer, name="tiny")

    def flush(self):
        """Send what waits for a forward."""
        self.link.now(Order(Kind.PROBE, 0, (0, 0)))
