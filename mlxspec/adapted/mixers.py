"""Runs a recurrent layer over a tree: level by level, the nodes of a level as a batch.

Each row of a tree continues from the state of its parent; `States` keeps the state after every
node. A module that also attends stages the rows level by level. So it supports only chains, whose
rows are in that order, and its mask is cut to the rows that are staged so far.
"""

from collections.abc import Callable
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_map

from mlxspec.adapted.current import Current
from mlxspec.adapted.leaves import LeafList, RowsLeaf
from mlxspec.adapted.override import Undo, first_array, override
from mlxspec.errors import UnsupportedOperationError
from mlxspec.kv.states import Row


def branch(module: nn.Module, current: Current) -> Undo:
    """Make a module with a recurrent state run over the trees of the forward in progress."""

    def around(call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if not current.is_running or current.cache.states.levels is None:
            return call(*args, **kwargs)
        shape = first_array([*args, *kwargs.values()]).shape[:2]
        L = (current.folded or shape)[1]
        first = current.cache.states.num_staged - L
        outputs = []
        order: list[int] = []
        for rows in current.cache.states.levels:
            flat = [sequence * L + row - first for sequence, row in rows]
            order.extend(flat)
            outputs.append(_level(call, rows, flat, current, args, kwargs))
        back = mx.array(sorted(range(len(order)), key=order.__getitem__), mx.int32)
        return tree_map(lambda *parts: _joined(parts, back, shape), *outputs)

    return override(module, around)


def _level(
    call: Callable[..., Any],
    rows: list[Row],
    flat: list[int],
    current: Current,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    index = mx.array(flat, mx.int32)
    given = [*args, *kwargs.values()]
    shape = first_array(given).shape[:2]
    B, L = current.folded or shape
    lists = [one for one in given if isinstance(one, LeafList)]
    attends = any(isinstance(leaf, RowsLeaf) for one in lists for leaf in one.caches)

    def pick(value: Any) -> Any:
        if not isinstance(value, mx.array):
            return value
        if value.shape[:2] != shape:
            return _cut(value, flat, L) if attends else value
        return value.reshape(-1, 1, *value.shape[2:])[index]

    positions = current.positions
    every = current.offset + mx.arange(L) if positions is None else positions
    current.rows = rows
    current.positions = mx.broadcast_to(every, (B, L)).reshape(-1, 1)[index]
    try:
        return call(*tree_map(pick, list(args)), **tree_map(pick, kwargs))
    finally:
        current.rows, current.positions = None, positions


def _cut(value: mx.array, flat: list[int], L: int) -> mx.array:
    """Return the part of a mask (L, n_keys) for the rows of a level; any other array as it is."""
    if value.dtype != mx.bool_ or value.ndim != 2 or value.shape[0] != L:
        return value
    if len(flat) != 1:
        raise UnsupportedOperationError("one module has attention and a state, so it has no trees")
    at = flat[0]
    return value[at : at + 1, : value.shape[1] - (L - 1 - at)]


def _joined(parts: tuple[Any, ...], back: mx.array, shape: tuple[int, ...]) -> Any:
    """Return the outputs of all levels as rows in their own order."""
    if not isinstance(parts[0], mx.array):
        return parts[0]
    rows = mx.concatenate(list(parts))[back]
    return rows.reshape(*shape, *rows.shape[2:])
