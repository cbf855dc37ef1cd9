"""Convert scaled rotary embeddings of a GGUF file to the `rope_scaling` of Hugging Face.

Most files state the settings. Files of Llama 3.x hold only the result: a tensor with one factor
per frequency. The settings follow from its largest factor, and are used only if they reproduce the
tensor.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mlxspec.errors import UnsupportedModelError
from mlxspec.loading.gguf.numbers import Numbers
from mlxspec.models.rope import inverse_frequencies

_TOLERANCE = 1e-3


def stated_scaling(numbers: Numbers) -> dict[str, Any] | None:
    """Return the scaling in the metadata, or None if there is none."""
    kind = numbers.value("rope.scaling.type") or "none"
    if kind == "none":
        return None
    factor = numbers.value("rope.scaling.factor")
    scaling = {"rope_type": kind, "factor": 1.0 if factor is None else factor}
    original = numbers.value("rope.scaling.original_context_length")
    if original is not None:
        scaling["original_max_position_embeddings"] = original
    for key in ("beta_fast", "beta_slow"):
        if (value := numbers.value(f"rope.scaling.yarn_{key}")) is not None:
            scaling[key] = value
    return scaling


def llama3_scaling(
    path: Path, theta: float, head_dim: int, factors: Sequence[float]
) -> dict[str, Any]:
    """Return the settings of Llama 3 that give the factors of a file.

    `theta` is the base of the frequencies; each of the head_dim / 2 frequencies has a factor, its
    divisor.

    Raises:
        UnsupportedModelError: No settings of Llama 3 give these factors.
    """
    scaling = {
        "rope_type": "llama3",
        "factor": max(factors),
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }
    if not all(factor >= 1 for factor in factors) or not _lead_to(
        factors,
        scaled=inverse_frequencies(head_dim, theta, scaling),
        plain=inverse_frequencies(head_dim, theta, None),
    ):
        raise UnsupportedModelError(
            f"{path} holds rope_freqs.weight with factors that are not those of Llama 3: "
            "such a scaling cannot be run"
        )
    return scaling


def _lead_to(factors: Sequence[float], scaled: Sequence[float], plain: Sequence[float]) -> bool:
    return len(factors) == len(plain) and all(
        math.isclose(before / after, factor, rel_tol=_TOLERANCE)
        for before, after, factor in zip(plain, scaled, factors, strict=True)
    )
