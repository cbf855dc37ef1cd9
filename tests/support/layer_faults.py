"""A layer of a model that raises at a chosen point."""

from mlxspec.models.layers import DecoderLayer


class Fault:
    """Makes a layer raise, before or after it has staged its rows, from a given pass on."""

    def __init__(self, error, *, layer, is_after, passes=0):
        self.error, self.layer, self.is_after, self.passes = error, layer, is_after, passes

    def __enter__(self):
        self.call = DecoderLayer.__call__
        fault = self

        def failing(self, *args):
            is_mine = self.self_attn.layer == fault.layer
            fault.passes -= is_mine
            if is_mine and fault.passes < 0 and not fault.is_after:
                raise fault.error
            output = fault.call(self, *args)
            if is_mine and fault.passes < 0:
                raise fault.error
            return output

        DecoderLayer.__call__ = failing

    def __exit__(self, *_):
        DecoderLayer.__call__ = self.call
