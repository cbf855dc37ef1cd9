"""What a model family settles: everything in which one family's config differs from another's."""

from dataclasses import dataclass

from mlxspec.models.fields import Fields


@dataclass(frozen=True)
class Family:
    """The answers of one family to one config.

    Attributes:
        num_key_value_heads: Key/value heads; each serves an equal share of the query heads.
        max_position_embeddings: Context length the model was made for, in tokens.
        attention_bias: Whether the query, key and value projections add a bias.
        output_bias: Whether the attention's output projection adds one.
        mlp_bias: Whether the three projections of the MLP add one.
        layer_windows: Per layer, the number of latest tokens seen (itself included), or None for
            the whole past.
    """

    num_key_value_heads: int
    max_position_embeddings: int
    attention_bias: bool
    output_bias: bool
    mlp_bias: bool
    layer_windows: tuple[int | None, ...]


MAX_LAYERS = 2**14
"""More than any model has; a file that states more would have its layers counted for minutes."""


def read_num_layers(fields: Fields) -> int:
    """Return the number of layers."""
    return fields.integer("num_hidden_layers", maximum=MAX_LAYERS)


def read_key_value_heads(fields: Fields, default: int) -> int:
    """Return the number of key/value heads: `default` if missing, all heads if null."""
    if "num_key_value_heads" in fields:
        default = fields.integer("num_attention_heads")
    return fields.integer("num_key_value_heads", default)


def read_layer_windows(fields: Fields, window: int | None) -> tuple[int | None, ...]:
    """Return the windows that an explicit `layer_types` list asks for.

    Raises:
        UnsupportedModelError: The list has the wrong length or an unknown entry, or asks for a
            window where the config gives none.
    """
    allowed = {"full_attention": None, "attention": None, "sliding_attention": window}
    layer_types, num_layers = fields.get("layer_types"), read_num_layers(fields)
    if not isinstance(layer_types, list) or len(layer_types) != num_layers:
        raise fields.refusal("layer_types", f"a list of {num_layers} strings, one per layer")
    if any(not isinstance(kind, str) or kind not in allowed for kind in layer_types):
        raise fields.refusal("layer_types", "'full_attention' or 'sliding_attention' per layer")
    if window is None and "sliding_attention" in layer_types:
        raise fields.refusal("sliding_window", "given where layer_types asks for sliding_attention")
    return tuple(allowed[kind] for kind in layer_types)
