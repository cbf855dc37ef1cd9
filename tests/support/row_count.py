"""Counts the rows that go through the layers of a model, and its forwards."""

from collections import Counter

from mlxspec.models.layers import DecoderLayer


class RowCount:
    """Counts the rows that enter each layer of any model while it is active."""

    def __init__(self, num_layers: int):
        self.rows = [0] * num_layers

    def __enter__(self):
        self._call = call = DecoderLayer.__call__

        def counting(layer, x, cache, positions, masks):
            self.rows[layer.self_attn.layer] += x.shape[1]
            return call(layer, x, cache, positions, masks)

        DecoderLayer.__call__ = counting
        return self

    def __exit__(self, *_):
        DecoderLayer.__call__ = self._call


class ForwardCount:
    """Counts the forwards through all layers of every model while it is active.

    `of(model)` gives those of one model, whatever decoder ran them: the calls of its last layer.
    """

    def __init__(self):
        self._calls = Counter()

    def of(self, model):
        return self._calls[id(model.layers[-1])]

    def __enter__(self):
        self._call = call = DecoderLayer.__call__

        def counting(layer, *args):
            output = call(layer, *args)
            self._calls[id(layer)] += 1
            return output

        DecoderLayer.__call__ = counting
        return self

    def __exit__(self, *_):
        DecoderLayer.__call__ = self._call
