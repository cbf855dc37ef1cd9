"""The sizes of weights, keys and values, from a config and the headers of its files.

A config is a small text and can state any size. Every weight takes at least one bit, so a config
with more weights than its files have bits is refused.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import mlx.core as mx

from mlxspec.device.packed import Quantization
from mlxspec.errors import UnsupportedModelError
from mlxspec.kv.storage import GROWTH
from mlxspec.kv.windows import USUAL_EVICTION
from mlxspec.models import ModelConfig, TargetConfig

_FLOATS = {"F32": ("float32", 4), "F16": ("float16", 2), "BF16": ("bfloat16", 2)}
_EIGHT_BITS = ("F8_E4M3", "F8_E5M2")  # become bfloat16
_NOT_TEXT = frozenset(
    {
        "vision_tower",
        "vision_model",
        "visual",
        "multi_modal_projector",
        "audio_tower",
        "embed_vision",
        "embed_audio",
    }
)

StoredTensors = dict[str, tuple[str, int]]
"""Tensors of files, each as name: (type, bytes); the types are those of safetensors."""


@dataclass(frozen=True)
class StoredSizes:
    """The sizes of the weights of a checkpoint, as arrays of MLX.

    Attributes:
        packed_bytes: Bytes of quantised weights, which are packed in integers.
        num_floats: Floating-point numbers, including scales and biases of quantised weights.
        float_bytes: Bytes of these in their stored type.
        dtype: Type of the embedding or of its scales, such as "float16"; "" for other types.
        num_weights: Numbers in all weights once they are unpacked.
    """

    packed_bytes: int
    num_floats: int
    float_bytes: int
    dtype: str
    num_weights: int


def num_weights(config: ModelConfig) -> int:
    """Return the number of weights of a model with this config."""
    width, inner = config.hidden_size, config.intermediate_size
    queries = config.num_attention_heads * config.head_dim
    keys = config.num_key_value_heads * config.head_dim
    layer = 2 * width * (queries + keys) + 3 * width * inner + 2 * width
    layer += (queries + 2 * keys) * config.attention_bias + width * config.output_bias
    layer += (2 * inner + width) * config.mlp_bias
    tables = config.vocab_size * width * (1 if config.tie_word_embeddings else 2)
    return config.num_hidden_layers * layer + tables + width


def row_bytes(config: TargetConfig, item_size: int, kv_bits: int | None = None) -> int:
    """Return the bytes of the keys and values of one token in all layers.

    `item_size` is the bytes of one number of the computation. `kv_bits` is 8 or 4, or None for keys
    and values that are not quantised.

    Raises:
        ValueError: `kv_bits` is another number.
        UnsupportedOperationError: The model's heads cannot be quantised.
    """
    return _bytes(config.kv_numbers, config, item_size, kv_bits)


def cache_bytes(
    config: TargetConfig, num_tokens: int, item_size: int, kv_bits: int | None = None
) -> int:
    """Return the bytes of the keys and values of some tokens; a window keeps only the last.

    The config must be that of a model that is built. The rest is as in `row_bytes`.
    """
    numbers = 0
    for window, own in zip(config.row_windows, config.row_numbers, strict=True):
        most = num_tokens if window is None else USUAL_EVICTION.most_held(window) + GROWTH
        numbers += own * min(num_tokens, most)
    return _bytes(numbers, config, item_size, kv_bits)


def _bytes(numbers: int, config: TargetConfig, item_size: int, kv_bits: int | None) -> int:
    if kv_bits is None:
        return numbers * item_size
    packing = Quantization.for_head_dim(kv_bits, config.head_dim)
    groups = numbers // packing.group_size
    return numbers * kv_bits // 8 + 2 * groups * item_size


def total_sizes(
    stored: StoredTensors,
    config: Mapping[str, Any],
    quantization: Mapping[str, Any] | None,
) -> StoredSizes:
    """Return the total sizes of the tensors that are loaded.

    `config` is the content of config.json. Tensors that no text model keeps are left out and all
    others count. So the sizes of a model that mlx-lm runs are exact or slightly too large.
    """
    packed = floats = float_bytes = num_weights = 0
    dtypes: Counter[str] = Counter()
    for name, (dtype, n_bytes) in stored.items():
        if _is_left_out(name, config):
            continue
        path, _, kind = name.rpartition(".")
        is_packed = f"{path}.scales" in stored and kind not in ("scales", "biases", "bias")
        if is_packed:
            num_weights += 8 * n_bytes // _bits(path, quantization)
        elif kind.endswith("_blocks"):  # of gpt-oss, four bits each
            num_weights += 2 * n_bytes
        count, width = _as_floats(dtype, n_bytes)
        floats, float_bytes = floats + count, float_bytes + count * width
        packed += 0 if count else n_bytes
        dtypes[_FLOATS.get(dtype, ("", 0))[0]] += count
        if f"{path}.scales" not in stored or kind == "bias":
            num_weights += count
    dtype = max(dtypes, key=lambda word: dtypes[word], default="")
    return StoredSizes(packed, floats, float_bytes, dtype, num_weights)


def _as_floats(dtype: str, n_bytes: int) -> tuple[int, int]:
    """Return the number of floating-point numbers in a tensor, and the loaded bytes of each."""
    if dtype in _EIGHT_BITS:
        return n_bytes, 2
    size = _FLOATS.get(dtype, ("", 0))[1]
    return (n_bytes // size, size) if size else (0, 0)


def _bits(path: str, quantization: Mapping[str, Any] | None) -> int:
    settings = quantization or {}
    own = settings.get(path)
    bits = own.get("bits") if isinstance(own, Mapping) else settings.get("bits")
    return bits if isinstance(bits, int) and 1 <= bits <= 8 else 4


def _is_left_out(name: str, config: Mapping[str, Any]) -> bool:
    parts = name.split(".")
    is_head_of_tied = "lm_head" in parts and config.get("tie_word_embeddings") is True
    return is_head_of_tied or "inv_freq" in parts or not _NOT_TEXT.isdisjoint(parts)


def is_possible(config: ModelConfig, stored_bytes: int) -> bool:
    """Return whether `stored_bytes` can hold the weights of a config at one bit or more each."""
    return num_weights(config) <= 8 * stored_bytes


def check_size(config: ModelConfig, tensors: Mapping[str, mx.array]) -> None:
    """Raise UnsupportedModelError if the tensors are too small for the weights of the config."""
    stored = sum(array.nbytes for array in tensors.values())
    if not is_possible(config, stored):
        raise UnsupportedModelError(
            f"config.json states a model of {num_weights(config)} weights, and its files hold "
            f"{stored} bytes: they belong to different models, or are incomplete"
        )
