"""Makes the dense layers of a model multiply as those of our ports do, if that is faster.

Some CPUs multiply the few rows of a draft fastest in pieces (`device/products.py`); MLX's own
layers pass them to the BLAS whole. Then a draft of four rows costs more than its tokens save. The
products are equal up to rounding. Only large matrices are shared among cores: for a small one,
starting and waiting take as long as the product, and the host can prepare the next round in that
time.
"""

import mlx.core as mx
import mlx.nn as nn

from mlxspec.adapted.anatomy import modules_of
from mlxspec.adapted.current import Current
from mlxspec.adapted.override import Undo, mark
from mlxspec.device import products

_WORTH_SHARING = 500_000  # numbers of a matrix


def faster_products(model: nn.Module, current: Current) -> list[Undo]:
    """Make the dense layers of a model use `products.product` in our forwards; none on a GPU.

    A layer of another type, such as a quantised one or one with adapters, stays unchanged.
    """
    if not products.has_own_products():
        return []
    modules = modules_of(model)
    linear = [_linear(module, current) for module in modules if type(module) is nn.Linear]
    return linear + [_head(module, current) for module in modules if type(module) is nn.Embedding]


def _linear(layer: nn.Module, current: Current) -> Undo:
    is_shared = layer.weight.size >= _WORTH_SHARING

    def __call__(self: nn.Linear, x: mx.array) -> mx.array:
        if not current.is_ours:
            return nn.Linear.__call__(self, x)
        return products.product(self, x, is_shared=is_shared)

    return mark(layer, __call__=__call__)


def _head(embedding: nn.Module, current: Current) -> Undo:
    """Change how an embedding computes logits; it embeds as before."""

    def as_linear(self: nn.Embedding, x: mx.array) -> mx.array:
        return products.product(self, x) if current.is_ours else nn.Embedding.as_linear(self, x)

    return mark(embedding, as_linear=as_linear)
