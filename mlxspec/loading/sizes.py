"""Whether a checkpoint can be what its config states, told before anything is built from it.

A config is a small text and may state any size. Every weight takes a bit at least, so a config of
more weights than its files have bits is refused, however large it is.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import mlx.core as mx

from mlxspec.device.packed import Quantization
from mlxspec.errors import UnsupportedModelError
from mlxspec.models import ModelConfig


@dataclass(frozen=True)
class StoredSizes:
    """What the weights of a checkpoint take, as MLX's arrays of them.

    Attributes:
        packed_bytes: Bytes of what is packed in integers.
        num_floats: Floating-point numbers, scales and biases of packed weights included.
        float_bytes: Bytes of these as they are stored.
        dtype: Type of the embedding or of its scales, such as "float16"; "" where that is another.
    """

    packed_bytes: int
    num_floats: int
    float_bytes: int
    dtype: str


def num_weights(config: ModelConfig) -> int:
    """Return how many numbers a model of this shape is made of."""
    width, inner = config.hidden_size, config.intermediate_size
    queries = config.num_attention_heads * config.head_dim
    keys = config.num_key_value_heads * config.head_dim
    layer = 2 * width * (queries + keys) + 3 * width * inner + 2 * width
    layer += (queries + 2 * keys) * config.attention_bias + width * config.output_bias
    layer += (2 * inner + width) * config.mlp_bias
    tables = config.vocab_size * width * (1 if config.tie_word_embeddings else 2)
    return config.num_hidden_layers * layer + tables + width


def row_bytes(config: ModelConfig, item_size: int, kv_bits: int | None = None) -> int:
    """Return the bytes that the keys and values of one token take in all layers.

    Args:
        config: The model's.
        item_size: Bytes of a number that it computes with.
        kv_bits: 8 or 4 where they are kept quantised.

    Raises:
        ValueError: `kv_bits` is something else.
        UnsupportedOperationError: The model's heads cannot be quantised.
    """
    row = config.head_dim * item_size
    if kv_bits is not None:
        packing = Quantization.for_head_dim(kv_bits, config.head_dim)
        row = config.head_dim * kv_bits // 8
        row += 2 * config.head_dim // packing.group_size * item_size
    return 2 * config.num_hidden_layers * config.num_key_value_heads * row


def is_possible(config: ModelConfig, stored_bytes: int) -> bool:
    """Say whether so many bytes can hold the weights that a config states: a bit each, at least."""
    return num_weights(config) <= 8 * stored_bytes


def check_size(config: ModelConfig, tensors: Mapping[str, mx.array]) -> None:
    """Raise UnsupportedModelError where tensors cannot hold the weights that a config states."""
    stored = sum(array.nbytes for array in tensors.values())
    if not is_possible(config, stored):
        raise UnsupportedModelError(
            f"config.json states a model of {num_weights(config)} weights, and its files hold "
            f"{stored} bytes: they belong to different models, or are incomplete"
        )
