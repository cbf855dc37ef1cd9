"""Whether a checkpoint can be what its config states, told before anything is built from it.

A config is a small text and may state any size. Every weight takes a bit at least, so a config of
more weights than its files have bits is refused, however large it is.
"""

from collections.abc import Mapping

import mlx.core as mx

from mlxspec.errors import UnsupportedModelError
from mlxspec.models import ModelConfig


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


def check_size(config: ModelConfig, tensors: Mapping[str, mx.array]) -> None:
    """Raise UnsupportedModelError where tensors cannot hold the weights that a config states."""
    stored = sum(array.nbytes for array in tensors.values())
    if num_weights(config) > 8 * stored:
        raise UnsupportedModelError(
            f"config.json states a model of {num_weights(config)} weights, and its files hold "
            f"{stored} bytes: they belong to different models, or are incomplete"
        )
