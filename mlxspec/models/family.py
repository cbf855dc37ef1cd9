"""The settings in which the config of one model family differs from that of another."""

from dataclasses import dataclass

from mlxspec.models.fields import Fields


@dataclass(frozen=True)
class Family:
    """The settings of one config whose meaning or default depends on the family.

    They are described in `ModelConfig`.
    """

    num_key_value_heads: int
    max_position_embeddings: int
    attention_bias: bool
    output_bias: bool
    mlp_bias: bool
    layer_windows: tuple[int | None, ...]


MAX_LAYERS = 2**14
"""More than any model has. Without it, a wrong number in a file would cost minutes of loops."""


def read_num_layers(fields: Fields) -> int:
    """Return the number of layers."""
    return fields.integer("num_hidden_layers", maximum=MAX_LAYERS)


def read_key_value_heads(fields: Fields, default: int) -> int:
    """Return the number of key/value heads: `default` if missing, all heads if null."""
    if "num_key_value_heads" in fields:
        default = fields.integer("num_attention_heads")
    return fields.integer("num_key_value_heads", default)


def read_layer_windows(fields: Fields, window: int | None) -> tuple[int | None, ...]:
    """Return the windows that an explicit `layer_types` list defines.

    Raises:
        UnsupportedModelError: The list has the wrong length or an unknown entry, or it has
            sliding attention while the config has no window.
    """
    allowed = {"full_attention": None, "attention": None, "sliding_attention": window}
    layer_types, num_layers = fields.get("layer_types"), read_num_layers(fields)
    if not isinstance(layer_types, list) or len(layer_types) != num_layers:
        raise fields.refusal("layer_types", f"a list of {num_layers} strings, one per layer")
    if any(not isinstance(kind, str) or kind not in allowed for kind in layer_types):
        raise fields.refusal("layer_types", "'full_attention' or 'sliding_attention' per layer")
    if window is None and "sliding_attention" in layer_types:
        raise fields.refusal("sliding_window", "a number where layer_types has sliding_attention")
    return tuple(allowed[kind] for kind in layer_types)
