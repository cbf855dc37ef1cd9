"""The sizes that a config states: of weights, and of keys and values.

A config is a small text and can state any size. Every weight takes at least one bit, so a config
with more weights than its files have bits is refused.
"""

from collections.abc import Mapping

import mlx.core as mx

from mlxspec.device.packed import Quantization
from mlxspec.errors import UnsupportedModelError
from mlxspec.kv.storage import GROWTH
from mlxspec.kv.windows import USUAL_EVICTION
from mlxspec.models import ModelConfig, TargetConfig


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


def row_bytes(config: TargetConfig, item_size: int, kv_bits: int | None = None) -> int:
    """Return the bytes of the keys and values of one token in all layers.

    `item_size` is the bytes of one number of the computation. `kv_bits` is 8 or 4, or None for keys
    and values that are not quantised; heads that cannot be quantised raise
    UnsupportedOperationError.
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
