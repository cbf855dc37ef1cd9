"""Counts the rows that go through the layers of a model."""

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
