"""Rotary position embedding: one table of frequencies per model, one position per node.

Every kind of scaling only changes the frequencies, once, in float64:

    default   theta ** (-2 i / head_dim)
    linear    all divided by `factor`
    llama3    long wavelengths divided by `factor`, short ones unchanged, a ramp between them
    yarn      the same idea with the ramp over the index i, and sharper attention
              (Peng et al. 2023, https://arxiv.org/abs/2309.00071)

Angles are float32 for every dtype of the model: bfloat16 cannot distinguish position 257 from 256.
Pairs are (i, i + head_dim / 2), as in Hugging Face checkpoints (RoFormer, Su et al. 2021,
https://arxiv.org/abs/2104.09864).
"""

import math
from collections.abc import Mapping
from typing import Any

import mlx.core as mx

from mlxspec.device.attention import Positions, in_whole_vectors, prepared_positions, rotate


def inverse_frequencies(
    head_dim: int, theta: float, scaling: Mapping[str, Any] | None
) -> list[float]:
    """Return the angle per position, in radians, of each of the `head_dim / 2` pairs."""
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


class Rope:
    """Rotates queries and keys; shared by all layers of a model.

    `score_factor` multiplies the attention scores: yarn's factor of the rotated queries times that
    of the keys.
    """

    def __init__(self, head_dim: int, theta: float, scaling: Mapping[str, Any] | None):
        self._head_dim = head_dim
        frequencies = inverse_frequencies(head_dim, theta, scaling)
        missing = in_whole_vectors(len(frequencies)) - len(frequencies)
        self._frequencies = mx.array(frequencies + [0.0] * missing, mx.float32)
        self._wavelengths = mx.array([1 / frequency for frequency in frequencies], mx.float32)
        self.score_factor: float = (scaling or {}).get("attention_factor", 1.0) ** 2

    def prepared(self, positions: int | mx.array, num_rows: int) -> Positions:
        """Return positions in the form that rotates fastest when many layers share them."""
        half = self._head_dim // 2
        return prepared_positions(positions, num_rows, self._frequencies, half)

    def __call__(
        self, queries: mx.array, keys: mx.array, positions: Positions
    ) -> tuple[mx.array, mx.array]:
        """Rotate each row of (B, H, L, D) queries and (B, Hkv, L, D) keys; their dtype is kept."""
        return rotate(queries, keys, positions, self._wavelengths)
