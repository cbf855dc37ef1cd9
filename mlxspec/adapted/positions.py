"""Gives every row of a tree its own position, in models that count rows.

A model of mlx-lm rotates L rows that follow each other: it passes one offset. `mx.fast.rope` takes
one offset per sequence, too. So the L rows of a tree are folded into L sequences of one row, each
with its own offset, and folded back. A learned embedding of positions gets the positions instead.
"""

import inspect
from collections.abc import Callable
from typing import Any

import mlx.core as mx
import mlx.nn as nn

from mlxspec.adapted.current import Current
from mlxspec.adapted.override import Undo, override


def rotates(module: nn.Module) -> bool:
    """Return whether calls of a module take the rows to rotate and their offset."""
    names = list(inspect.signature(type(module).__call__).parameters)
    return "offset" in names and not {"cache", "mask"} & set(names)


def position_rotation(module: nn.Module, current: Current) -> Undo:
    """Let a rotary module use the positions of the forward in progress."""

    def around(call: Callable[..., Any], x: mx.array, *args: Any, **kwargs: Any) -> Any:
        positions = current.positions
        if positions is None:
            return call(x, *args, **kwargs)
        B, H, L, D = x.shape
        shape = (B, L) if current.folded is None or current.rows is not None else current.folded
        folded = x.swapaxes(1, 2).reshape(-1, H, 1, D)
        each = mx.broadcast_to(positions, shape).reshape(-1)
        if args:
            rotated = call(folded, each, *args[1:], **kwargs)
        else:
            rotated = call(folded, **{**kwargs, "offset": each})
        return rotated.reshape(B, L, H, D).swapaxes(1, 2)

    return override(module, around)


def position_embedding(module: nn.Module, current: Current) -> Undo:
    """Let a learned embedding of positions use those of the forward in progress."""

    def around(call: Callable[..., Any], counted: mx.array) -> Any:
        positions = current.positions
        if positions is None or current.folded is not None:
            return call(counted)
        L = counted.shape[-1]
        return call(counted - (current.offset + mx.arange(L)) + positions)

    return override(module, around)
