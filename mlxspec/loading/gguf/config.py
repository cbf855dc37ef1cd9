"""Convert the metadata of a GGUF file to a `config.json` of Hugging Face."""

from pathlib import Path
from typing import Any

from mlxspec.errors import UnsupportedModelError
from mlxspec.loading.gguf.header import GgufHeader
from mlxspec.loading.gguf.rope import llama3_scaling, stated_scaling
from mlxspec.loading.gguf.tokenizer import eos_token_ids

ARCHITECTURES = ("llama", "qwen2")


def check_architecture(path: Path, header: GgufHeader) -> str:
    """Return the architecture of a file.

    Raises:
        UnsupportedModelError: The architecture cannot be run.
    """
    architecture = header.metadata.get("general.architecture")
    if architecture not in ARCHITECTURES:
        raise UnsupportedModelError(
            f"{path} holds a model of the architecture {architecture!r}; "
            f"{' and '.join(ARCHITECTURES)} can be run"
        )
    if header.metadata.get(f"{architecture}.expert_count"):
        raise UnsupportedModelError(f"{path} holds a mixture of experts, which cannot be run")
    return str(architecture)


def gguf_config(path: Path, header: GgufHeader, factors: list[float] | None) -> dict[str, Any]:
    """Return the config of a file, checked against the shapes of its tensors.

    Args:
        path: The file, for messages.
        header: Its header.
        factors: Content of `rope_freqs.weight`, or None.

    Raises:
        UnsupportedModelError: A number is missing or impossible, or contradicts the tensors.
    """
    architecture = check_architecture(path, header)
    metadata, tensors = header.metadata, header.tensors
    numbers = _Numbers(path, metadata, architecture)
    heads, hidden_size = numbers.count("attention.head_count"), numbers.count("embedding_length")
    head_dim = numbers.count("attention.key_length", hidden_size // heads)
    if numbers.count("rope.dimension_count", head_dim) != head_dim or head_dim % 2:
        raise UnsupportedModelError(f"{path} does not rotate heads whole, so it cannot be run")
    theta = numbers.number("rope.freq_base", 10000.0)
    scaling = stated_scaling(metadata, architecture)
    if factors is not None:
        scaling = llama3_scaling(path, theta, head_dim, factors)
    vocabulary = tensors.get("token_embd.weight")
    config = {
        "model_type": architecture,
        "vocab_size": vocabulary.shape[0] if vocabulary else 0,
        "hidden_size": hidden_size,
        "intermediate_size": numbers.count("feed_forward_length"),
        "num_hidden_layers": numbers.count("block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": numbers.count("attention.head_count_kv", heads),
        "head_dim": head_dim,
        "max_position_embeddings": numbers.count("context_length"),
        "rms_norm_eps": numbers.number("attention.layer_norm_rms_epsilon"),
        "rope_theta": theta,
        "rope_scaling": scaling,
        "tie_word_embeddings": "output.weight" not in tensors,
        "attention_bias": "blk.0.attn_q.bias" in tensors,
        "mlp_bias": "blk.0.ffn_gate.bias" in tensors,
        "eos_token_id": eos_token_ids(metadata),
    }
    window = metadata.get(f"{architecture}.attention.sliding_window")
    if architecture == "llama" and window:
        config |= {"model_type": "mistral", "sliding_window": window}
    _check_shapes(path, header, config)
    return config


class _Numbers:
    """Reads the numbers of one architecture from the metadata."""

    def __init__(self, path: Path, metadata: dict[str, Any], architecture: str) -> None:
        self._path = path
        self._metadata = metadata
        self._architecture = architecture

    def number(self, key: str, default: float | None = None) -> float:
        """Return a positive number."""
        name = f"{self._architecture}.{key}"
        value = self._metadata.get(name, default)
        if not isinstance(value, int | float) or isinstance(value, bool) or not value > 0:
            raise UnsupportedModelError(
                f"{self._path} has {name}={value!r:.60}; a positive number is needed"
            )
        return value

    def count(self, key: str, default: int | None = None) -> int:
        """Return a positive whole number."""
        value = self.number(key, default)
        if not isinstance(value, int):
            raise UnsupportedModelError(
                f"{self._path} has {self._architecture}.{key}={value}; a whole number is needed"
            )
        return value


def _check_shapes(path: Path, header: GgufHeader, config: dict[str, Any]) -> None:
    """Refuse numbers that contradict the tensors, before a model is built from them."""
    hidden_size, head_dim = config["hidden_size"], config["head_dim"]
    num_layers = config["num_hidden_layers"]
    expected = {
        "token_embd.weight": (config["vocab_size"], hidden_size),
        "blk.0.attn_q.weight": (config["num_attention_heads"] * head_dim, hidden_size),
        "blk.0.attn_k.weight": (config["num_key_value_heads"] * head_dim, hidden_size),
        f"blk.{num_layers - 1}.ffn_up.weight": (config["intermediate_size"], hidden_size),
    }
    for name, shape in expected.items():
        found = header.tensors.get(name)
        if found is None or found.shape != shape or num_layers > len(header.tensors):
            raise UnsupportedModelError(
                f"{path} states {num_layers} layers and, by that, a tensor {name} of the shape "
                f"{shape}; it holds {found.shape if found else 'none'}"
            )
