"""Rope settings of a config, in the old and the new spelling.

Old: `rope_theta` at the top level and `rope_scaling: {"type" or "rope_type": ...}`. Transformers 5:
both inside `rope_parameters`. The result is one mapping with every number filled in, defaults as in
Hugging Face, so that `rope.py` has only the formulas.
"""

import math
from collections.abc import Mapping
from typing import Any

from mlxspec.errors import OtherPortError
from mlxspec.models.fields import Fields

ROPE_TYPES = ("default", "linear", "llama3", "yarn")


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
    numbers = (
        _llama3(settings) if kind == "llama3" else _yarn(settings, max_position_embeddings / length)
    )
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


def _llama3(settings: Fields) -> dict[str, float]:
    low = settings.number("low_freq_factor")
    return {
        "factor": settings.number("factor"),
        "low_freq_factor": low,
        "high_freq_factor": settings.number("high_freq_factor", above=low),
    }


def _yarn(settings: Fields, stretch: float) -> dict[str, float]:
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
