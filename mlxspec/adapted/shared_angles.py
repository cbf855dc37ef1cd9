"""Shares the angles of rotations among all layers of a forward, on a CPU.

There MLX composes `mx.fast.rope` of slow operations and computes cosines and sines again in every
layer: 7 to 10 % of the time of a token of a small model. A module with other rules than plain RoPE
(RoFormer, Su et al. 2021, https://arxiv.org/abs/2104.09864) is not changed.
"""

import math
from dataclasses import dataclass

import mlx.core as mx
import mlx.nn as nn

from mlxspec.adapted.current import Current
from mlxspec.device import backend, ops
from mlxspec.device.cpu.attention import Angles


def can_share(module: nn.Module) -> bool:
    """Return whether a rotary module follows plain RoPE and runs on a CPU."""
    return type(module) is nn.RoPE and not module.traditional and backend.is_cpu()


@dataclass(frozen=True)
class SharedAngles:
    """The angles of a kind of rotation.

    Attributes:
        width: Numbers of a row, all of which are rotated.
        base: Base of the frequencies.
        scale: Factor of the positions.
    """

    width: int
    base: float
    scale: float

    @staticmethod
    def of(module: nn.Module, x: mx.array) -> "SharedAngles | None":
        """Return the current angles of a module; None if it rotates only a part of each row."""
        if module.dims != x.shape[-1]:
            return None
        return SharedAngles(module.dims, float(module.base), float(module.scale))

    def rotate(self, x: mx.array, positions: int | mx.array, current: Current) -> mx.array:
        """Return (B, H, L, D) rows, each rotated by its position; the dtype is kept.

        `positions` is the position of the first of contiguous rows, or the positions of the
        forward.
        """
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
        steps = mx.arange(0, -ops.in_whole_vectors(half), -1, mx.float32)
        frequencies = mx.exp(steps * (math.log(self.base) / half))
        return Angles.of(positions * self.scale, frequencies, half)
