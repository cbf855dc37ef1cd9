"""Rank 0 and another rank in one process: a follower gets each message as it is sent.

Both have the whole of one tiny model, so no collective is needed, and both can be compared.
"""

import json

from mlxspec.decoder.decoder import Decoder
from mlxspec.distributed.decoder import ShardedDecoder, ShardedModel
from mlxspec.distributed.follower import Follower
from mlxspec.distributed.orders import Orders
from mlxspec.drafters.none import NoDrafter
from mlxspec.engine.engine import Engine
from tests.support.tiny import ToyTokenizer, make_cache


class Followed:
    """An engine whose target is followed.

    Attributes:
        engine: The engine of rank 0.
        orders: What it tells the other rank.
        messages: The names of the orders of each message so far.
        theirs: The decoders of the other rank, by their number.
    """

    def __init__(self, model, drafter=None, kind="full", tokenizer=None):
        self.messages = []
        self._follower = Follower(None)
        self._follower.make_decoder = lambda: Decoder(model, make_cache(model, kind))
        self.theirs = self._follower.decoders
        self.orders = Orders(self._send)
        shared = ShardedModel(model, self.orders, has_all_layers=True)
        target = ShardedDecoder(shared, make_cache(model, kind))
        tokenizer = tokenizer or ToyTokenizer(model.config.vocab_size)
        self.engine = Engine(target, drafter or NoDrafter(), tokenizer, name="tiny")

    def _send(self, orders):
        self.messages.append([order[2] if order[0] == "call" else order[0] for order in orders])
        self._follower.obey(json.loads(json.dumps(orders)))

    def flush(self):
        """Send what waits for a forward."""
        with self.orders.together("close", -1):
            pass
