"""Convert the metadata of a GGUF file to a `config.json` of Hugging Face.

Most files state the settings of scaled rotary embeddings. Files of Llama 3.x hold only the result:
a tensor with one factor per frequency. The settings follow from its largest factor, and are used
only if they reproduce the tensor.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mlxspec.errors import UnsupportedModelError
from mlxspec.loading.gguf.architectures import ARCHITECTURES, FUSED_MLP, Architecture, Factors
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
    """Return the config of a file, checked against the shapes of its tensors.

    `factors` are its tensors of rotary factors, empty if they are not known.
    """
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
    config |= _rotary(path, fields, architecture, head_dim)
    if ROPE_FACTORS in factors:
        theta, divisors = config["rope_theta"], factors[ROPE_FACTORS]
        config["rope_scaling"] = _llama3_scaling(path, theta, head_dim, divisors)
    config |= architecture.settings(fields, config, factors)
    _check_shapes(path, header, architecture, config)
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
    """Return the scaling in the metadata, or None if there is none."""
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
    """Return the settings of Llama 3 that give the factors of a file.

    `theta` is the base of the frequencies; each of the head_dim / 2 frequencies has a factor, its
    divisor.
    """
    scaling = {
        "rope_type": "llama3",
        "factor": max(factors),
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }
    plain = inverse_frequencies(head_dim, theta, None)
    is_of_llama3 = len(factors) == len(plain) and all(factor >= 1 for factor in factors)
    if is_of_llama3:
        scaled = inverse_frequencies(head_dim, theta, scaling)
        is_of_llama3 = np.allclose(np.divide(plain, scaled), factors, rtol=_TOLERANCE, atol=0)
    if not is_of_llama3:
        raise UnsupportedModelError(
            f"{path} holds rope_freqs.weight with factors that are not those of Llama 3: "
            "such a scaling cannot be run"
        )
    return scaling


def _check_shapes(
    path: Path, header: GgufHeader, architecture: Architecture, config: dict[str, Any]
) -> None:
    """Refuse numbers that contradict the tensors, before a model is built from them."""
    num_layers = config["num_hidden_layers"]
    for name, shape in _expected_shapes(architecture, config).items():
        found = header.tensors.get(name)
        if found is None or found.shape != shape or num_layers > len(header.tensors):
            raise UnsupportedModelError(
                f"{path} states {num_layers} layers and, by that, a tensor {name} of the shape "
                f"{shape}; it holds {found.shape if found else 'none'}"
            )


def _expected_shapes(
    architecture: Architecture, config: dict[str, Any]
) -> dict[str, tuple[int, ...]]:
    hidden_size, head_dim = config["hidden_size"], config["head_dim"]
    queries = config["num_attention_heads"] * head_dim
    keys = config["num_key_value_heads"] * head_dim
    expected: dict[str, tuple[int, ...]]
    expected = {"token_embd.weight": (config["vocab_size"], hidden_size)}
    if "attn_qkv" in architecture.names:
        expected["blk.0.attn_qkv.weight"] = (queries + 2 * keys, hidden_size)
    else:
        expected["blk.0.attn_q.weight"] = (queries, hidden_size)
        expected["blk.0.attn_k.weight"] = (keys, hidden_size)
    last = f"blk.{config['num_hidden_layers'] - 1}"
    if architecture.has_experts:
        experts = config["num_experts"], config["moe_intermediate_size"], hidden_size
        return {**expected, f"{last}.ffn_up_exps.weight": experts}
    is_fused = architecture.names.get("ffn_up") == FUSED_MLP["ffn_up"]
    inner = config["intermediate_size"] * (2 if is_fused else 1)
    return {**expected, f"{last}.ffn_up.weight": (inner, hidden_size)}
