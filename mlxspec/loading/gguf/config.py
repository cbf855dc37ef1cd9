"""Convert the metadata of a GGUF file to a `config.json` of Hugging Face.

Files of Llama 3.x hold only the result of their scaled rotary embedding: one factor per frequency.
The settings follow from its largest factor, and are used only if they reproduce the tensor.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mlxspec.errors import UnsupportedModelError
from mlxspec.loading.gguf.architectures import ARCHITECTURES, Architecture, Factors
from mlxspec.loading.gguf.header import GgufHeader
from mlxspec.loading.gguf.tokenizer import eos_token_ids
from mlxspec.models.fields import Fields
from mlxspec.models.rope import inverse_frequencies

ROPE_FACTORS = "rope_freqs.weight"
_TOLERANCE = 1e-3


def check_architecture(path: Path, header: GgufHeader) -> str:
    """Return the architecture of a file."""
    name = header.metadata.get("general.architecture")
    if not isinstance(name, str) or name not in ARCHITECTURES:
        raise UnsupportedModelError(
            f"{path} holds a model of the architecture {name!r}; {', '.join(ARCHITECTURES)} can "
            "be run: use a folder of this model"
        )
    if header.metadata.get(f"{name}.expert_count") and not ARCHITECTURES[name].has_experts:
        raise UnsupportedModelError(
            f"{path} holds a mixture of experts of the architecture {name}, which cannot be run: "
            "use a folder of this model"
        )
    return name


def gguf_config(path: Path, header: GgufHeader, factors: Factors) -> dict[str, Any]:
    """Return the config of a file; `factors` are its tensors of rotary factors, if known."""
    name = check_architecture(path, header)
    architecture, tensors = ARCHITECTURES[name], header.tensors
    stated = ((key.partition("."), value) for key, value in header.metadata.items())
    own = {key: value for (prefix, _, key), value in stated if prefix == name}
    fields = Fields(own, f"{path}, {name}", "choose another file of this model")
    heads, hidden_size = fields.integer("attention.head_count"), fields.integer("embedding_length")
    head_dim = fields.integer("attention.key_length", hidden_size // heads)
    vocabulary = tensors.get("token_embd.weight")
    config: dict[str, Any] = {
        "model_type": architecture.model_type,
        "vocab_size": vocabulary.shape[0] if vocabulary else 0,
        "hidden_size": hidden_size,
        "intermediate_size": fields.integer("feed_forward_length"),
        "num_hidden_layers": fields.integer("block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": fields.integer("attention.head_count_kv", heads),
        "head_dim": head_dim,
        "max_position_embeddings": fields.integer("context_length"),
        "rms_norm_eps": fields.number(architecture.epsilon),
        "tie_word_embeddings": "output.weight" not in tensors,
        "attention_bias": "blk.0.attn_q.bias" in tensors,
        "mlp_bias": "blk.0.ffn_gate.bias" in tensors,
        "eos_token_id": eos_token_ids(header.metadata),
    }
    if config["num_hidden_layers"] > len(tensors):  # a layer has one at least
        raise UnsupportedModelError(
            f"{path} states {config['num_hidden_layers']} layers and holds {len(tensors)} tensors: "
            "download it again"
        )
    config |= _rotary(path, fields, architecture, head_dim)
    if ROPE_FACTORS in factors:
        theta, divisors = config["rope_theta"], factors[ROPE_FACTORS]
        config["rope_scaling"] = _llama3_scaling(path, theta, head_dim, divisors)
    config |= architecture.settings(fields, config, factors)
    return config


def _rotary(
    path: Path, fields: Fields, architecture: Architecture, head_dim: int
) -> dict[str, Any]:
    rotated = fields.integer("rope.dimension_count", head_dim)
    whole = rotated == head_dim or (architecture.rotates_part and rotated < head_dim)
    if not whole or rotated % 2:
        raise UnsupportedModelError(
            f"{path} does not rotate heads whole ({rotated} of {head_dim} numbers), so it cannot "
            "be run: use a folder of this model"
        )
    config = {
        "rope_theta": fields.number("rope.freq_base", 10000.0),
        "rope_scaling": _stated_scaling(fields),
    }
    if architecture.rotates_part:
        config["partial_rotary_factor"] = rotated / head_dim
    return config


def _stated_scaling(fields: Fields) -> dict[str, Any] | None:
    kind = fields.get("rope.scaling.type") or "none"
    if kind == "none":
        return None
    factor = fields.get("rope.scaling.factor")
    scaling = {"rope_type": kind, "factor": 1.0 if factor is None else factor}
    original = fields.get("rope.scaling.original_context_length")
    if original is not None:
        scaling["original_max_position_embeddings"] = original
    for key in ("beta_fast", "beta_slow"):
        if (value := fields.get(f"rope.scaling.yarn_{key}")) is not None:
            scaling[key] = value
    return scaling


def _llama3_scaling(
    path: Path, theta: float, head_dim: int, factors: Sequence[float]
) -> dict[str, Any]:
    """Return the settings of Llama 3 that give the factors of a file, one divisor a frequency."""
    scaling = {
        "rope_type": "llama3",
        "factor": max(factors),
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }
    # The length comes first: a file can state heads of any width.
    is_of_llama3 = 2 * len(factors) == head_dim and all(factor >= 1 for factor in factors)
    if is_of_llama3:
        plain, scaled = (inverse_frequencies(head_dim, theta, way) for way in (None, scaling))
        is_of_llama3 = np.allclose(np.divide(plain, scaled), factors, rtol=_TOLERANCE, atol=0)
    if not is_of_llama3:
        raise UnsupportedModelError(
            f"{path} holds rope_freqs.weight with factors that are not those of Llama 3: "
            "such a scaling cannot be run"
        )
    return scaling
