"""Which code runs a model: our own port of its type, or mlx-lm's."""

from collections.abc import Mapping
from typing import Any

from mlxspec.errors import OtherPortError, UnsupportedModelError
from mlxspec.loading.model_types import is_in_mlx_lm
from mlxspec.models import ModelConfig
from mlxspec.models.config import FAMILIES
from mlxspec.models.weights import Quantization


def is_ours(config: Mapping[str, Any]) -> bool:
    """Return whether our own port handles a model, even if only to refuse it."""
    kind = config.get("model_type")
    return not isinstance(kind, str) or (kind in FAMILIES and not why_not_ours(config))


def why_not_ours(config: Mapping[str, Any]) -> str:
    """Return why our port of a type cannot run a model that mlx-lm's code may run, or "".

    Our port refuses a config with a wrong value itself. It also gets configs that mlx-lm reads
    differently from Hugging Face: its files of these types do not know `rope_parameters`, and they
    drop the head if `tie_word_embeddings` is not stated.
    """
    is_clear = config.get("tie_word_embeddings") is not None and not config.get("rope_parameters")
    if not is_clear or not is_in_mlx_lm(config["model_type"]):
        return ""
    try:
        ModelConfig.from_dict(config)
        read_quantization(config)
    except OtherPortError as error:
        return str(error)
    except UnsupportedModelError:
        pass
    return ""


def read_quantization(config: Mapping[str, Any]) -> Quantization | None:
    """Return the quantisation settings of a config; None if its weights are not quantised.

    Raises:
        OtherPortError: The weights are quantised by another method than MLX's.
    """
    own = config.get("quantization")
    if isinstance(own, dict):
        return own
    other = config.get("quantization_config")
    if other:
        method = other.get("quant_method", "unknown") if isinstance(other, dict) else other
        raise OtherPortError(
            f"the weights are quantised by the method {method!r:.200}; those quantised by MLX can "
            "be read, or plain ones: choose such a version of the model"
        )
    return None
