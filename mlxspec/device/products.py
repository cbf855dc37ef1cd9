"""Products of rows with a layer's matrix.

On a CPU without Apple's libraries OpenBLAS first packs the matrix into its own order, which for a
few rows is more work than the product. It packs nothing for a small product, so there a matrix is
cut into pieces that give small products: on one core one row takes two thirds of the time, and
sixteen rows take five sixths.
"""

import math

import mlx.core as mx
import mlx.nn as nn

from mlxspec.device import backend, core_split
from mlxspec.device.core_split import WHOLE, Part
from mlxspec.device.exponential import silu

_SMALL = 1_000_000  # multiplications: up to this number OpenBLAS packs nothing
_HEIGHTS = (64, 32, 16)  # rows of a piece, the first that fits is used
_BLOCK = 768  # rows of a matrix that stay in a core's cache


class Linear(nn.Linear):
    """`nn.Linear` with the product that is fastest on this device."""

    def __call__(self, x: mx.array) -> mx.array:
        return product(self, x)


def has_own_products() -> bool:
    """Return whether `product` is faster here than a layer's own product."""
    return backend.lacks_accelerate()


def product(layer: nn.Module, x: mx.array, *, is_shared: bool = True) -> mx.array:
    """Return the (..., o) products of (..., D) rows with a layer's matrix.

    `layer` is an `nn.Linear`, an `nn.Embedding` as a head, or a quantised one of either. With
    `is_shared`, the cores of a small CPU share the product.
    """
    if _is_cut(layer):
        if is_shared:
            return _joined(core_split.each(lambda part: _in_pieces(layer, x, part)), x)
        return _joined([_in_pieces(layer, x, WHOLE)], x)
    products: mx.array
    if isinstance(layer, nn.Linear):  # by their classes, as a model may call `product` for them
        products = nn.Linear.__call__(layer, x)
    elif isinstance(layer, nn.Embedding):
        is_tall = backend.lacks_accelerate() and layer.weight.shape[0] > _BLOCK
        products = _tall_product(x, layer.weight) if is_tall else nn.Embedding.as_linear(layer, x)
    else:
        products = layer.as_linear(x) if isinstance(layer, nn.QuantizedEmbedding) else layer(x)
    return products


def swiglu(gate: nn.Module, up: nn.Module, x: mx.array) -> mx.array:
    """Return silu(gate x) * up x, (..., o) of (..., D) rows: a matrix for each core."""
    if not (_is_cut(gate) and _is_cut(up)):
        return silu(product(gate, x)) * product(up, x)
    opened, let_through = core_split.together(
        lambda: silu(_in_pieces(gate, x, WHOLE)), lambda: _in_pieces(up, x, WHOLE)
    )
    return _joined([opened * let_through], x)


def attention_heads(
    x: mx.array, q: nn.Module, k: nn.Module, v: nn.Module, head_dim: int
) -> tuple[mx.array, mx.array, mx.array]:
    """Return queries, keys and values, each (B, H, L, head_dim), of (B, L, D) rows."""
    # With two cores the queries have one to themselves.
    queries, (keys, values) = core_split.together(
        lambda: _heads(q, x, head_dim), lambda: (_heads(k, x, head_dim), _heads(v, x, head_dim))
    )
    return queries, keys, values


def _heads(layer: nn.Module, x: mx.array, head_dim: int) -> mx.array:
    """Return the (B, H, L, head_dim) products of (B, L, D) rows with a layer's matrix, by head."""
    if x.shape[0] == 1 and _is_cut(layer):
        pieces = _in_pieces(layer, x, WHOLE, head_dim)
        if pieces.ndim == 3 and pieces.shape[-1] == head_dim:
            return pieces[None]  # a piece is a head
        products = _joined([pieces], x)
    else:
        products = product(layer, x)
    B, L, _ = products.shape
    return products.reshape(B, L, -1, head_dim).transpose(0, 2, 1, 3)


def _is_cut(layer: nn.Module) -> bool:
    return bool(core_split.count()) and isinstance(layer, nn.Linear | nn.Embedding)


def _in_pieces(layer: nn.Module, x: mx.array, part: Part, height: int = 0) -> mx.array:
    """Return (pieces, rows, height) products of all rows of x, or (..., o) where nothing is cut.

    `layer` is dense, `x` is (..., D), and `part` selects rows of the matrix. A piece has `height`
    rows if such a piece is small enough; 0 chooses the best height.
    """
    views = vars(layer).get("_views")
    if views is None or not views.are_of(layer):
        views = layer._views = _Views(layer)
    *outer, width = x.shape
    num_rows = math.prod(outer)
    matrix, bias = views.of(part, num_rows, height)
    if matrix.ndim == 3 and x.ndim != 2 and outer[:-1] != [1]:
        x = x.reshape(num_rows, width)
    products = x @ matrix
    return products if bias is None else products + bias


def _joined(parts: list[mx.array], x: mx.array) -> mx.array:
    """Return (..., o): the results of `_in_pieces` of all cores for (..., D) rows, joined."""
    outer = x.shape[:-1]
    is_uncut = parts[0].shape[:-1] == outer
    if len(parts) > 1 and not is_uncut and len({part.shape[1:] for part in parts}) == 1:
        parts = [mx.concatenate(parts)]  # pieces of one shape need one transposition for all
    rows = [_in_rows(part, outer) for part in parts]
    return rows[0] if len(rows) == 1 else mx.concatenate(rows, axis=-1)


def _in_rows(products: mx.array, outer: tuple[int, ...]) -> mx.array:
    if products.shape[:-1] == outer:
        return products
    if products.shape[1] > 1:
        products = products.swapaxes(0, 1)
    return products.reshape(*outer, -1)


class _Views:
    """Views of a layer's matrix and bias, made once: making them is slower than a small product."""

    def __init__(self, layer: nn.Module) -> None:
        self._weight: mx.array = layer["weight"]
        self._bias: mx.array | None = layer.get("bias")
        self._whole_from = _SMALL // (_HEIGHTS[-1] * self._weight.shape[1]) + 1  # rows
        self._made: dict[tuple[Part, int], _View] = {}
        self._found: dict[tuple[Part, int, int], _View] = {}

    def are_of(self, layer: nn.Module) -> bool:
        return self._weight is layer["weight"] and self._bias is layer.get("bias")

    def of(self, part: Part, num_rows: int, height: int) -> "_View":
        """Return the matrix, transposed and cut for products with `num_rows` rows, and the bias.

        The matrix is (D, n), or (pieces, D, height) where it is cut into pieces; the bias has the
        layout of the products.
        """
        key = part, min(num_rows, self._whole_from), height
        if key not in self._found:
            cut = part.rows(self._weight.shape[0])
            numbers = key[1] * self._weight.shape[1]
            of = part, _height(numbers, cut.stop - cut.start, height)
            if of not in self._made:
                self._made[of] = self._make(*of)
            self._found[key] = self._made[of]
        return self._found[key]

    def _make(self, part: Part, height: int) -> "_View":
        cut = part.rows(self._weight.shape[0])
        matrix = self._weight[cut]
        bias = None if self._bias is None else self._bias[cut]
        if height:
            matrix = matrix.reshape(-1, height, matrix.shape[1])
            bias = None if bias is None else bias.reshape(-1, 1, height)
        views = matrix.swapaxes(-1, -2), bias
        mx.async_eval(views)  # a lazy view belongs to one thread's stream, and others use it too
        return views


_View = tuple[mx.array, mx.array | None]


def _height(numbers: int, matrix_rows: int, wanted: int) -> int:
    """Return how many rows of the matrix a piece has, `wanted` (or 0) first; 0 for no cut.

    Each row of the matrix is multiplied with `numbers` numbers.
    """
    heights = (wanted, *_HEIGHTS) if wanted else _HEIGHTS
    fitting = (h for h in heights if numbers * h <= _SMALL and matrix_rows % h == 0)
    return next(fitting, 0)


def _tall_product(x: mx.array, weight: mx.array) -> mx.array:
    """Return the (..., V) products of (..., D) rows and a (V, D) matrix of many rows.

    For OpenBLAS, packing the matrix of an output head is more work than the product. Blocks that
    stay in a core's cache are packed faster, or for one or two rows not at all: on one core a head
    takes half the time, on two cores a fifth less.
    """
    starts = range(0, weight.shape[0], _BLOCK)
    return mx.concatenate([x @ weight[start : start + _BLOCK].T for start in starts], axis=-1)
