"""Llama and Mistral: the same layers; Mistral may have windows.

The `model_type` of Llama 1 to 3.x, TinyLlama and SmolLM2 is "llama", that of Mistral 7B and Nemo is
"mistral" (Touvron et al. 2023, https://arxiv.org/abs/2302.13971; Jiang et al. 2023,
https://arxiv.org/abs/2310.06825).
"""

from mlxspec.errors import OtherPortError
from mlxspec.models.family import (
    Family,
    read_key_value_heads,
    read_layer_windows,
    read_num_layers,
)
from mlxspec.models.fields import Fields


def read_llama(fields: Fields) -> Family:
    """Return the settings of a "llama" config; `attention_bias` applies to all four projections.

    A sliding window raises UnsupportedModelError.
    """
    num_layers = read_num_layers(fields)
    if fields.get("layer_types") is not None and any(read_layer_windows(fields, window=1)):
        # Hugging Face ignores such an entry and mlx-lm obeys it.
        allowed = "'full_attention' in every layer of a llama checkpoint"
        raise fields.refusal("layer_types", allowed, OtherPortError)
    return Family(
        num_key_value_heads=read_key_value_heads(fields, fields.integer("num_attention_heads")),
        max_position_embeddings=fields.integer("max_position_embeddings", 2048),
        attention_bias=fields.flag("attention_bias", False),
        output_bias=fields.flag("attention_bias", False),
        mlp_bias=fields.flag("mlp_bias", False),
        layer_windows=(None,) * num_layers,
    )


def read_mistral(fields: Fields) -> Family:
    """Return the settings of a "mistral" config: one window for all layers, biases if stated.

    A missing `sliding_window` means 4096, null means none; `layer_types` may remove it per layer.
    """
    num_layers = read_num_layers(fields)
    is_lifted = "sliding_window" in fields and fields.get("sliding_window") is None
    window = None if is_lifted else fields.integer("sliding_window", 4096)
    windows: tuple[int | None, ...] = (window,) * num_layers
    if fields.get("layer_types") is not None:
        windows = read_layer_windows(fields, window)
    return Family(
        num_key_value_heads=read_key_value_heads(fields, 8),
        max_position_embeddings=fields.integer("max_position_embeddings", 4096 * 32),
        attention_bias=fields.flag("attention_bias", False),
        output_bias=fields.flag("attention_bias", False),
        mlp_bias=fields.flag("mlp_bias", False),
        layer_windows=windows,
    )
