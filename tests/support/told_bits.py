"""The tokens of a reply, and the bits of the logits from which each was drawn."""

from dataclasses import replace

import mlx.core as mx
import numpy as np


class ToldBits:
    """Settings of a reply whose tokens and logits are kept as `bits`."""

    def __init__(self, params):
        self.bits = []
        self.params = replace(params, on_logits=self._add)

    def _add(self, tokens, logits):
        rows = np.array(logits.astype(mx.float32))
        self.bits += [(token, row.tobytes()) for token, row in zip(tokens, rows, strict=True)]


def bits_of(engine, prompt, params, **arguments):
    """The bits of a reply; `arguments` as in `Engine.generate`."""
    told = ToldBits(params)
    for _ in engine.generate(prompt, told.params, **arguments):
        pass
    return told.bits
