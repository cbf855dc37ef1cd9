"""Qwen2 and Qwen2.5: biases on queries, keys and values; windows in upper layers, off by default.

Nearly every published config has a `sliding_window` without effect: only
`use_sliding_window: true` turns it on, and only from layer `max_window_layers` upwards
(Yang et al. 2024, https://arxiv.org/abs/2407.10671).
"""

from mlxspec.models.family import (
    Family,
    read_key_value_heads,
    read_layer_windows,
    read_num_layers,
)
from mlxspec.models.fields import Fields


def read_qwen2(fields: Fields) -> Family:
    """Return the settings of a "qwen2" config."""
    return Family(
        num_key_value_heads=read_key_value_heads(fields, 32),
        max_position_embeddings=fields.integer("max_position_embeddings", 32768),
        attention_bias=True,
        output_bias=False,
        mlp_bias=False,
        layer_windows=_layer_windows(fields),
    )


def _layer_windows(fields: Fields) -> tuple[int | None, ...]:
    window = _window(fields)
    if fields.get("layer_types") is not None:
        return read_layer_windows(fields, window)
    num_layers = read_num_layers(fields)
    if window is None:
        return (None,) * num_layers
    first = fields.integer("max_window_layers", 28, minimum=0)
    return tuple(window if index >= first else None for index in range(num_layers))


def _window(fields: Fields) -> int | None:
    if not fields.flag("use_sliding_window", False):
        return None
    if "sliding_window" in fields and fields.get("sliding_window") is None:
        return None
    return fields.integer("sliding_window", 4096)
