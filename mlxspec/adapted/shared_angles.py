"""Lets all layers of a forward share the angles of their rotations, on a CPU.

There MLX composes `mx.fast.rope` of slow operations and computes cosines and sines in every layer
anew, 7 to 10 % of the time of a token of a small model. A module with other rules than plain
RoPE (RoFormer, Su et al. 2021, https://arxiv.org/abs/2104.09864) rotates as it always did.
"""

import math
from dataclasses import dataclass

import mlx.core as mx
import mlx.nn as nn

from mlxspec.adapted.current import Current
from mlxspec.device import backend, ops
from mlxspec.device.cpu.attention import Angles


def can_share(module: nn.Module) -> bool:
    """Return whether a module that rotates has the rules of plain RoPE, and a CPU."""
    return type(module) is nn.RoPE and not module.traditional and backend.is_cpu()


@dataclass(frozen=True)
class SharedAngles:
    """The angles of a kind of rotation.

    Attributes:
        width: Numbers of a row, all of which are rotated.
        base: Base of the frequencies.
        scale: Multiplies the positions.
    """

    width: int
    base: float
    scale: float

    @staticmethod
    def of(module: nn.Module, x: mx.array) -> "SharedAngles | None":
        """Return the angles of a module as it is now; None where it rotates a part of each row."""
        if module.dims != x.shape[-1]:
            return None
        return SharedAngles(module.dims, float(module.base), float(module.scale))

    def rotate(self, x: mx.array, positions: int | mx.array, current: Current) -> mx.array:
        """Return (B, H, L, D) rows, each rotated by its position; the dtype is kept.

        Args:
            x: The rows.
            positions: Position of the first of contiguous rows, or those of the forward.
            current: The forward in progress, whose layers share the angles.
        """
        B, _, L, _ = x.shape
        key = (self, positions, L) if isinstance(positions, int) else (self, id(positions), B)
        if key not in current.angles:
            is_text = isinstance(positions, int)
            every = mx.arange(L) + positions if is_text else current.each(B, L)
            current.angles[key] = self._angles(every), positions  # kept: its id stays its own
        return current.angles[key][0].rotate(x)

    def _angles(self, positions: mx.array) -> Angles:
        half = self.width // 2
        # As `mx.fast.rope` has them: at position 10,000 a frequency that rounds differently turns
        # by a thousandth.
        steps = mx.arange(0, -ops.in_whole_vectors(half), -1, mx.float32)
        frequencies = mx.exp(steps * (math.log(self.base) / half))
        return Angles.of(positions * self.scale, frequencies, half)
