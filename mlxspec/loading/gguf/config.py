"""Convert the metadata of a GGUF file to a `config.json` of Hugging Face."""

from pathlib import Path
from typing import Any

from mlxspec.errors import UnsupportedModelError
from mlxspec.loading.gguf.architectures import ARCHITECTURES, Architecture, Factors
from mlxspec.loading.gguf.header import GgufHeader
from mlxspec.loading.gguf.names import FUSED_MLP
from mlxspec.loading.gguf.numbers import Numbers
from mlxspec.loading.gguf.rope import llama3_scaling, stated_scaling
from mlxspec.loading.gguf.tokenizer import eos_token_ids

ROPE_FACTORS = "rope_freqs.weight"


def check_architecture(path: Path, header: GgufHeader) -> str:
    """Return the architecture of a file.

    Raises:
        UnsupportedModelError: The architecture cannot be run.
    """
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

    Raises:
        UnsupportedModelError: A number is missing or impossible, or contradicts the tensors.
    """
    name = check_architecture(path, header)
    architecture, tensors = ARCHITECTURES[name], header.tensors
    numbers = Numbers(path, header.metadata, name)
    heads, hidden_size = numbers.count("attention.head_count"), numbers.count("embedding_length")
    head_dim = numbers.count("attention.key_length", hidden_size // heads)
    vocabulary = tensors.get("token_embd.weight")
    config: dict[str, Any] = {
        "model_type": architecture.model_type,
        "vocab_size": vocabulary.shape[0] if vocabulary else 0,
        "hidden_size": hidden_size,
        "intermediate_size": numbers.count("feed_forward_length"),
        "num_hidden_layers": numbers.count("block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": numbers.count("attention.head_count_kv", heads),
        "head_dim": head_dim,
        "max_position_embeddings": numbers.count("context_length"),
        "rms_norm_eps": numbers.number(architecture.epsilon),
        "tie_word_embeddings": "output.weight" not in tensors,
        "attention_bias": "blk.0.attn_q.bias" in tensors,
        "mlp_bias": "blk.0.ffn_gate.bias" in tensors,
        "eos_token_id": eos_token_ids(header.metadata),
    }
    config |= _rotary(path, numbers, architecture, head_dim)
    if ROPE_FACTORS in factors:
        theta, divisors = config["rope_theta"], factors[ROPE_FACTORS]
        config["rope_scaling"] = llama3_scaling(path, theta, head_dim, divisors)
    config |= architecture.settings(numbers, config, factors)
    _check_shapes(path, header, architecture, config)
    return config


def _rotary(
    path: Path, numbers: Numbers, architecture: Architecture, head_dim: int
) -> dict[str, Any]:
    rotated = numbers.count("rope.dimension_count", head_dim)
    whole = rotated == head_dim or (architecture.rotates_part and rotated < head_dim)
    if not whole or rotated % 2:
        raise UnsupportedModelError(
            f"{path} does not rotate heads whole ({rotated} of {head_dim} numbers), so it cannot "
            "be run: use a folder of this model"
        )
    config = {
        "rope_theta": numbers.number("rope.freq_base", 10000.0),
        "rope_scaling": stated_scaling(numbers),
    }
    if architecture.rotates_part:
        config["partial_rotary_factor"] = rotated / head_dim
    return config


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
