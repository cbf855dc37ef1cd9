"""Gives every row of a tree its own position, in models that count rows.

A model of mlx-lm rotates L consecutive rows: it passes one offset. `mx.fast.rope` also takes one
offset per sequence. So the L rows of a tree are folded into L sequences of one row, each with its
own offset, and folded back. A learned embedding of positions gets the positions themselves.

On a CPU, MLX composes `mx.fast.rope` of slow operations and computes cosines and sines again in
every layer: 7 to 10 % of the time of a token of a small model. There the layers of a forward share
the angles of plain RoPE (RoFormer, Su et al. 2021, https://arxiv.org/abs/2104.09864).
"""

import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
import mlx.nn as nn

from mlxspec.adapted.current import Current
from mlxspec.adapted.override import Undo, override
from mlxspec.device.attention import Angles, in_whole_vectors, shares_angles


def rotates(module: nn.Module) -> bool:
    """Return whether calls of a module take the rows to rotate and their offset."""
    names = list(inspect.signature(type(module).__call__).parameters)
    return "offset" in names and not {"cache", "mask"} & set(names)


def position_rotation(module: nn.Module, current: Current) -> Undo:
    """Make a rotary module use the positions of the forward in progress."""
    # Before the override, which changes the type.
    is_plain = type(module) is nn.RoPE and not module.traditional and shares_angles()

    def around(call: Callable[..., Any], x: mx.array, *args: Any, **kwargs: Any) -> Any:
        positions = current.positions
        angles = SharedAngles.of(module, x) if is_plain and current.is_running else None
        if positions is None:
            return _rotated(call, x, args, kwargs, current, angles)
        if angles is not None:
            return angles.rotate(x, positions, current)
        B, H, L, D = x.shape
        folded = x.swapaxes(1, 2).reshape(-1, H, 1, D)
        each = current.each(B, L).reshape(-1)
        if args:
            rotated = call(folded, each, *args[1:], **kwargs)
        else:
            rotated = call(folded, **{**kwargs, "offset": each})
        return rotated.reshape(B, L, H, D).swapaxes(1, 2)

    return override(module, around)


def _rotated(
    call: Callable[..., Any],
    x: mx.array,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    current: Current,
    angles: "SharedAngles | None",
) -> Any:
    """Rotate the rows of a text; some models count the rows to compute their positions."""
    given = args[0] if args else kwargs.get("offset")
    if not (current.is_running and isinstance(given, int)):
        return call(x, *args, **kwargs)
    is_count = given == current.counted != current.offset
    offset = current.offset if is_count else given
    if angles is not None:
        return angles.rotate(x, offset, current)
    if args:
        return call(x, offset, *args[1:], **kwargs)
    return call(x, **{**kwargs, "offset": offset})


def position_embedding(module: nn.Module, current: Current) -> Undo:
    """Make a learned embedding of positions use those of the forward in progress."""

    def around(call: Callable[..., Any], counted: mx.array) -> Any:
        positions = current.positions
        if positions is None or current.folded is not None:
            return call(counted)
        L = counted.shape[-1]
        return call(counted - (current.offset + mx.arange(L)) + positions)

    return override(module, around)


@dataclass(frozen=True)
class SharedAngles:
    """The angles of a kind of rotation."""

    width: int  # numbers of a row, all of which are rotated
    base: float  # base of the frequencies
    scale: float  # factor of the positions

    @staticmethod
    def of(module: nn.Module, x: mx.array) -> "SharedAngles | None":
        """Return the angles of a module now; None if it rotates only a part of each row."""
        if module.dims != x.shape[-1]:
            return None
        return SharedAngles(module.dims, float(module.base), float(module.scale))

    def rotate(self, x: mx.array, positions: int | mx.array, current: Current) -> mx.array:
        """Return (B, H, L, D) rows, each rotated by its position; the dtype is kept."""
        B, _, L, _ = x.shape
        key = (self, positions, L) if isinstance(positions, int) else (self, id(positions), B)
        if key not in current.angles:
            is_text = isinstance(positions, int)
            every = mx.arange(L) + positions if is_text else current.each(B, L)
            # The reference keeps its id unique.
            current.angles[key] = self._angles(every), positions
        return current.angles[key][0].rotate(x)

    def _angles(self, positions: mx.array) -> Angles:
        half = self.width // 2
        # As in `mx.fast.rope`: at position 10,000 a differently rounded frequency changes the angle
        # by a thousandth.
        steps = mx.arange(0, -in_whole_vectors(half), -1, mx.float32)
        frequencies = mx.exp(steps * (math.log(self.base) / half))
        return Angles.of(positions * self.scale, frequencies, half)
