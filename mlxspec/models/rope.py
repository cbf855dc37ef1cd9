"""Rotary position embedding: its settings in a config, and one table of frequencies per model.

Every kind of scaling only changes the frequencies, once, in float64:

    default   theta ** (-2 i / head_dim)
    linear    all divided by `factor`
    llama3    long wavelengths divided by `factor`, short ones unchanged, a ramp between them
    yarn      the same idea with the ramp over the index i, and sharper attention
              (Peng et al. 2023, https://arxiv.org/abs/2309.00071)

Angles are float32 for every dtype of the model: bfloat16 cannot distinguish position 257 from 256.
Pairs are (i, i + head_dim / 2), as in Hugging Face checkpoints (RoFormer, Su et al. 2021,
https://arxiv.org/abs/2104.09864).

Old configs have `rope_theta` at the top level and `rope_scaling: {"type" or "rope_type": ...}`,
those of Transformers 5 have both inside `rope_parameters`. Defaults are those of Hugging Face.
"""

import math
from collections.abc import Mapping
from typing import Any

import mlx.core as mx

from mlxspec.device.attention import Positions, in_whole_vectors, prepared_positions, rotate
from mlxspec.errors import OtherPortError
from mlxspec.models.fields import Fields

ROPE_TYPES = ("default", "linear", "llama3", "yarn")


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
    """Rotates queries and keys; shared by all layers of a model."""

    def __init__(self, head_dim: int, theta: float, scaling: Mapping[str, Any] | None):
        self._head_dim = head_dim
        frequencies = inverse_frequencies(head_dim, theta, scaling)
        missing = in_whole_vectors(len(frequencies)) - len(frequencies)
        self._frequencies = mx.array(frequencies + [0.0] * missing, mx.float32)
        self._wavelengths = mx.array([1 / frequency for frequency in frequencies], mx.float32)
        # Multiplies the attention scores: yarn's factor of the queries times that of the keys.
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


# ---- settings of a config ----------------------------------------------------------------------


def read_rope_theta(fields: Fields) -> float:
    """Return the base of the frequencies, above 1; the rope settings override the top level."""
    default = fields.number("rope_theta", 10_000.0, above=1.0)
    return _settings(fields).number("rope_theta", default, above=1.0)


def read_rope_scaling(fields: Fields, max_position_embeddings: int) -> Mapping[str, Any] | None:
    """Return `rope_type` and its numbers, or None for the unscaled embedding."""
    settings = _settings(fields)
    kind = settings.text("rope_type", settings.text("type", "default"))
    if kind not in ROPE_TYPES:
        raise OtherPortError(
            f"rope type {kind!r} is not supported; supported are {', '.join(ROPE_TYPES)}"
        )
    _refuse_what_would_be_ignored(fields, settings)
    if kind == "default":
        return None
    if kind == "linear":
        return {"rope_type": kind, "factor": settings.number("factor")}
    # As in Hugging Face: here the top level overrides, and the context length is the default.
    inside = settings.integer("original_max_position_embeddings", max_position_embeddings)
    length = fields.integer("original_max_position_embeddings", inside)
    if kind == "llama3":
        numbers = _llama3_numbers(settings)
    else:
        numbers = _yarn_numbers(settings, max_position_embeddings / length)
    return {"rope_type": kind, "original_max_position_embeddings": length, **numbers}


def _settings(fields: Fields) -> Fields:
    return fields.section("rope_scaling" if fields.get("rope_scaling") else "rope_parameters")


def _refuse_what_would_be_ignored(fields: Fields, settings: Fields) -> None:
    for kind in ("full_attention", "sliding_attention"):
        if kind in settings:
            raise settings.refusal(kind, "left out: all layers share one rotary embedding")
    outside = fields.number("partial_rotary_factor", 1.0)
    if settings.number("partial_rotary_factor", outside) != 1.0:
        raise settings.refusal("partial_rotary_factor", "1: whole heads are rotated")


def _llama3_numbers(settings: Fields) -> dict[str, float]:
    low = settings.number("low_freq_factor")
    return {
        "factor": settings.number("factor"),
        "low_freq_factor": low,
        "high_freq_factor": settings.number("high_freq_factor", above=low),
    }


def _yarn_numbers(settings: Fields, stretch: float) -> dict[str, float]:
    factor = settings.number("factor", stretch)
    return {
        "factor": factor,
        "beta_fast": settings.number("beta_fast", 32.0),
        "beta_slow": settings.number("beta_slow", 1.0),
        "truncate": settings.flag("truncate", True),
        "attention_factor": settings.number("attention_factor", _sharpness(settings, factor)),
    }


def _sharpness(settings: Fields, factor: float) -> float:
    """Return yarn's default factor of rotated queries and keys."""

    def grown(mscale: float) -> float:
        return 1.0 + 0.1 * mscale * math.log(factor) if factor > 1 else 1.0

    if settings.get("mscale") and settings.get("mscale_all_dim"):
        return grown(settings.number("mscale")) / grown(settings.number("mscale_all_dim"))
    return grown(1.0)
