"""Models in half precision on a CPU, with the rounding of a GPU.

On a CPU, MLX computes every row of a half-precision product separately, so there is no drift. A GPU
has other kernels for several rows, which split the sums; this module imitates that.
"""

import mlx.core as mx
import numpy as np
from mlx.utils import tree_map

from mlxspec.decoder.decoder import Decoder
from mlxspec.device import products
from tests.support.tiny import tiny_model


def half_model(dtype=mx.float16, twins=False, **config):
    """A tiny model of some dtype.

    Args:
        dtype: Of all weights.
        twins: Whether every other token is nearly the one before it, so that its logit is too.
        config: As `tiny_model` takes it.
    """
    model = tiny_model(**config)
    if twins:
        head = model.lm_head.weight
        noise = mx.random.normal(head.shape, key=mx.random.key(1)) * 2e-4
        model.lm_head.weight = mx.repeat(head[::2], 2, axis=0) + noise
    return in_dtype(model, dtype)


def in_dtype(model, dtype):
    """Turn all weights of a model to a dtype; return it."""
    model.update(tree_map(lambda array: array.astype(dtype), model.parameters()))
    mx.eval(model.parameters())
    return model


def lose_a_row(monkeypatch):
    """Let a decoder drop the first of the draft tokens that it should commit."""
    commit = Decoder.commit

    def forgetful(self, path):
        commit(self, path)
        if len(path) > 1:
            for array in self.cache.arrays:
                array[..., len(self) - len(path) + 1, :] = 0

    monkeypatch.setattr(Decoder, "commit", forgetful)


def cut_sums(monkeypatch):
    """Let a product of several rows be the sum of two rounded products."""

    def cut(layer, x, **named):
        matrix = layer.weight
        if x.size == x.shape[-1]:
            return x @ matrix.T
        half = matrix.shape[1] // 2
        return x[..., :half] @ matrix[:, :half].T + x[..., half:] @ matrix[:, half:].T

    monkeypatch.setattr(products, "_is_cut", lambda layer: False)
    monkeypatch.setattr(products, "product", cut)


# Two ways to round the same arithmetic differ in the last digits, so no single number is compared:
# the error of a row may be as large as that of the other implementation, and a little larger.
ONE_ROW, ALL_ROWS = 2.5, 1.5


def errors(logits, truth) -> np.ndarray:
    """(L,) root mean square error of each row."""
    return np.sqrt(((logits - truth) ** 2).mean(axis=1))


def assert_as_near(ours: np.ndarray, theirs: np.ndarray) -> None:
    """One row may be rounded twice as badly as another, but not all of them together."""
    assert np.sqrt((ours**2).mean()) < ALL_ROWS * np.sqrt((theirs**2).mean())
    assert ours.max() < ONE_ROW * theirs.max()
