"""Rotary position embedding: one table of frequencies per model, one position per node.

Every kind of scaling only changes the frequencies, once, in float64:

    default   theta ** (-2 i / head_dim)
    linear    all divided by `factor`
    llama3    long wavelengths divided by `factor`, short ones unchanged, a ramp between them
    yarn      the same idea with the ramp over the index i, and sharper attention
              (Peng et al. 2023, https://arxiv.org/abs/2309.00071)

Angles are float32 for every dtype of the model: bfloat16 cannot tell position 257 from 256.
Pairs are (i, i + head_dim / 2), as in Hugging Face checkpoints (RoFormer, Su et al. 2021,
https://arxiv.org/abs/2104.09864).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import mlx.core as mx

from mlxspec.device import backend


def inverse_frequencies(
    head_dim: int, theta: float, scaling: Mapping[str, Any] | None
) -> list[float]:
    """Return the angle per position, in radians, of each of the `head_dim / 2` pairs.

    Args:
        head_dim: Size of an attention head, even.
        theta: Base of the unscaled frequencies.
        scaling: `ModelConfig.rope_scaling`.
    """
    plain = [theta ** (-index / head_dim) for index in range(0, head_dim, 2)]
    if scaling is None or scaling["rope_type"] == "default":
        return plain
    if scaling["rope_type"] == "linear":
        return [frequency / scaling["factor"] for frequency in plain]
    if scaling["rope_type"] == "llama3":
        return [_llama3(frequency, scaling) for frequency in plain]
    assert scaling["rope_type"] == "yarn", scaling
    return _yarn(plain, theta, scaling)


def _llama3(frequency: float, scaling: Mapping[str, Any]) -> float:
    turns = scaling["original_max_position_embeddings"] * frequency / (2 * math.pi)
    low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
    share = min(max((turns - low) / (high - low), 0.0), 1.0)  # of the unscaled frequency
    return float(frequency * (share + (1 - share) / scaling["factor"]))


def _yarn(plain: list[float], theta: float, scaling: Mapping[str, Any]) -> list[float]:
    length = scaling["original_max_position_embeddings"]

    def index_of(turns: float) -> float:  # index of the pair with `turns` full turns in `length`
        return len(plain) * math.log(length / (turns * 2 * math.pi)) / math.log(theta)

    first, last = index_of(scaling["beta_fast"]), index_of(scaling["beta_slow"])
    if scaling["truncate"]:
        first, last = math.floor(first), math.ceil(last)
    # The limit is head_dim - 1, not half of it: the published code counts pairs but clips as if it
    # counted dimensions, and checkpoints were trained with that.
    first, last = max(first, 0), min(last, 2 * len(plain) - 1)
    width = last - first or 0.001  # a ramp without width would divide by zero

    def share(index: int) -> float:
        return 1 - min(max((index - first) / width, 0.0), 1.0)

    return [
        frequency * (share(index) + (1 - share(index)) / scaling["factor"])
        for index, frequency in enumerate(plain)
    ]


_VECTOR = 16  # float32 numbers in the widest vector register of a CPU


@dataclass(frozen=True)
class Angles:
    """Cosines and sines of L rows, computed once for all layers of a forward.

    Attributes:
        cosines: (L, head_dim) float32, both halves equal; (B, 1, L, head_dim) where each sequence
            of a batch has its own positions.
        sines: The same shape, the first half negated.
    """

    cosines: mx.array
    sines: mx.array

    def turn(self, x: mx.array) -> mx.array:
        """Return (B, H, L, D) rows, each rotated by its angles, in the dtype of `x`."""
        crossed = mx.roll(x, x.shape[-1] // 2, -1)
        return (x * self.cosines + crossed * self.sines).astype(x.dtype)


Positions = int | mx.array | Angles
"""The positions of the L rows of a forward: an int for the first of contiguous rows, (L,) int32,
(B, L) int32 where sequences differ, or the angles of these from `Rope.prepared`."""


class Rope:
    """Rotates queries and keys; shared by all layers of a model.

    Attributes:
        score_factor: Factor of the attention scores: yarn's factor of the rotated queries times
            that of the keys.
    """

    def __init__(self, head_dim: int, theta: float, scaling: Mapping[str, Any] | None):
        self._head_dim = head_dim
        frequencies = inverse_frequencies(head_dim, theta, scaling)
        # Padded to whole vectors: else the number of rows would decide which cosines the vector
        # unit computes, and a row would round differently beside other rows.
        missing = -len(frequencies) % _VECTOR
        self._frequencies = mx.array(frequencies + [0.0] * missing, mx.float32)
        self._wavelengths = mx.array([1 / frequency for frequency in frequencies], mx.float32)
        self.score_factor: float = (scaling or {}).get("attention_factor", 1.0) ** 2

    def prepared(self, positions: int | mx.array, num_rows: int) -> Positions:
        """Return the fastest form of the positions of `num_rows` rows, for use in all layers.

        On a CPU MLX composes the rotation from a dozen operations, cosines and sines among them, in
        every layer again. So on a CPU the angles are computed once.
        """
        if not backend.is_cpu():
            return positions
        if isinstance(positions, int):
            positions = mx.arange(positions, positions + num_rows)
        turns = positions.astype(mx.float32)[..., None] * self._frequencies
        if positions.ndim == 2:
            turns = turns[:, None]
        half = self._head_dim // 2
        cosines, sines = mx.cos(turns)[..., :half], mx.sin(turns)[..., :half]
        return Angles(
            mx.concatenate([cosines, cosines], axis=-1), mx.concatenate([-sines, sines], axis=-1)
        )

    def __call__(self, x: mx.array, positions: Positions) -> mx.array:
        """Rotate each row by its position.

        Args:
            x: (B, H, L, D).
            positions: Positions of the L rows.

        Returns:
            (B, H, L, D) in the dtype of `x`.
        """
        if isinstance(positions, Angles):
            return positions.turn(x)
        if isinstance(positions, int):
            return self._rotate(x, positions)
        B, H, L, D = x.shape
        # mx.fast.rope takes one offset per sequence of a batch, so each row becomes a sequence.
        offsets = mx.broadcast_to(positions, (B, L)).reshape(-1)
        rows = self._rotate(x.swapaxes(1, 2).reshape(B * L, H, 1, D), offsets)
        return rows.reshape(B, L, H, D).swapaxes(1, 2)

    def _rotate(self, x: mx.array, offset: int | mx.array) -> mx.array:
        return mx.fast.rope(
            x,
            self._head_dim,
            traditional=False,
            base=None,
            scale=1.0,
            offset=offset,
            freqs=self._wavelengths,
        )
