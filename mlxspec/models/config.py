"""A model's config: a Hugging Face config.json, checked and with every default filled in.

Every setting has one form here: windows are per layer, end tokens are a tuple, rope settings have
one spelling. The `model_type` of Llama 1 to 3.x, TinyLlama and SmolLM2 is "llama", that of Mistral
7B and Nemo is "mistral" (Touvron et al. 2023, https://arxiv.org/abs/2302.13971; Jiang et al. 2023,
https://arxiv.org/abs/2310.06825). Qwen2 and Qwen2.5 are "qwen2" (Yang et al. 2024,
https://arxiv.org/abs/2407.10671).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypedDict

from mlxspec.errors import OtherPortError, UnsupportedModelError
from mlxspec.models.fields import MAX_INTEGER, Fields
from mlxspec.models.rope import read_rope_scaling, read_rope_theta
from mlxspec.models.target_model import TargetConfig
from mlxspec.params.checks import set_fields

MAX_LAYERS = 2**14  # more than any model has; a wrong number would cost minutes of loops


@dataclass(frozen=True, kw_only=True)
class ModelConfig(TargetConfig):
    """All settings that define what a model of ours computes, except its weights; none is 0."""

    rope_scaling: Mapping[str, Any] | None  # `rope_type` and its numbers (see `rope.py`)
    tie_word_embeddings: bool  # the embedding is also the output head
    output_bias: bool  # of the attention's output projection
    mlp_bias: bool

    def __post_init__(self) -> None:
        if self.model_type not in FAMILIES:
            raise _unknown_family(self.model_type)
        if self.num_attention_heads % self.num_key_value_heads:
            raise UnsupportedModelError(
                f"num_key_value_heads ({self.num_key_value_heads}) must divide "
                f"num_attention_heads ({self.num_attention_heads})"
            )
        if self.num_attention_heads * self.head_dim > MAX_INTEGER:
            raise UnsupportedModelError(
                f"num_attention_heads ({self.num_attention_heads}) times head_dim "
                f"({self.head_dim}) must be at most {MAX_INTEGER}"
            )
        if self.head_dim % 2:
            raise UnsupportedModelError(f"head_dim ({self.head_dim}) must be even to be rotated")
        one = 2 * self.num_key_value_heads * self.head_dim
        set_fields(
            self,
            row_numbers=(one,) * self.num_hidden_layers,
            row_windows=(None,) * self.num_hidden_layers,  # masks hide the rows outside a window
        )

    @staticmethod
    def from_dict(config: Mapping[str, Any]) -> "ModelConfig":
        """Return the model config of a parsed config.json, with the defaults of Hugging Face."""
        fields = Fields(config)
        model_type = fields.text("model_type")
        if model_type not in FAMILIES:
            raise _unknown_family(model_type)
        _refuse_other_arithmetic(fields)
        family = FAMILIES[model_type](fields)
        return ModelConfig(
            model_type=model_type,
            vocab_size=fields.integer("vocab_size"),
            hidden_size=fields.integer("hidden_size"),
            intermediate_size=fields.integer("intermediate_size"),
            num_hidden_layers=read_num_layers(fields),
            num_attention_heads=fields.integer("num_attention_heads"),
            head_dim=_head_dim(fields),
            rms_norm_eps=fields.number("rms_norm_eps", 1e-6),
            rope_theta=read_rope_theta(fields),
            rope_scaling=read_rope_scaling(fields, family["max_position_embeddings"]),
            tie_word_embeddings=fields.flag("tie_word_embeddings", False),
            eos_token_ids=_eos_token_ids(fields),
            **family,
        )


def _unknown_family(model_type: str) -> UnsupportedModelError:
    return UnsupportedModelError(
        f"model_type {model_type!r} is not supported; supported are {', '.join(FAMILIES)}"
    )


def _refuse_other_arithmetic(fields: Fields) -> None:
    if fields.text("hidden_act", "silu") != "silu":
        raise fields.refusal("hidden_act", "'silu', the only activation supported")
    if fields.flag("rope_traditional", False):
        allowed = "false: rotated pairs are half a head apart"
        raise fields.refusal("rope_traditional", allowed, OtherPortError)
    if fields.get("model_file") is not None:
        raise fields.refusal(
            "model_file", "left out: code of a checkpoint never runs", OtherPortError
        )


def _head_dim(fields: Fields) -> int:
    if fields.get("head_dim") is not None:
        return fields.integer("head_dim")
    hidden_size, num_heads = fields.integer("hidden_size"), fields.integer("num_attention_heads")
    if hidden_size % num_heads:
        raise fields.refusal(
            "num_attention_heads", f"a divisor of hidden_size ({hidden_size}), or head_dim given"
        )
    return hidden_size // num_heads


def _eos_token_ids(fields: Fields) -> tuple[int, ...]:
    value = fields.get("eos_token_id")
    tokens = value if isinstance(value, list) else [] if value is None else [value]
    if any(isinstance(token, bool) or not isinstance(token, int) or token < 0 for token in tokens):
        raise fields.refusal("eos_token_id", "a token id, a list of them, or null")
    return tuple(dict.fromkeys(tokens))


# ---- where families differ ---------------------------------------------------------------------


class Family(TypedDict):
    """The settings of a `ModelConfig` whose meaning or default depends on the family."""

    num_key_value_heads: int
    max_position_embeddings: int
    attention_bias: bool
    output_bias: bool
    mlp_bias: bool
    layer_windows: tuple[int | None, ...]


def read_llama(fields: Fields) -> Family:
    """Return the settings of a "llama" config; `attention_bias` applies to all four projections."""
    num_layers = read_num_layers(fields)
    if fields.get("layer_types") is not None and any(_stated_windows(fields, window=1)):
        # Hugging Face ignores such an entry and mlx-lm obeys it.
        allowed = "'full_attention' in every layer of a llama checkpoint"
        raise fields.refusal("layer_types", allowed, OtherPortError)
    return Family(
        num_key_value_heads=_key_value_heads(fields, fields.integer("num_attention_heads")),
        max_position_embeddings=fields.integer("max_position_embeddings", 2048),
        attention_bias=fields.flag("attention_bias", False),
        output_bias=fields.flag("attention_bias", False),
        mlp_bias=fields.flag("mlp_bias", False),
        layer_windows=(None,) * num_layers,
    )


def read_mistral(fields: Fields) -> Family:
    """Return the settings of a "mistral" config: one window for all layers, biases if stated."""
    return Family(
        num_key_value_heads=_key_value_heads(fields, 8),
        max_position_embeddings=fields.integer("max_position_embeddings", 4096 * 32),
        attention_bias=fields.flag("attention_bias", False),
        output_bias=fields.flag("attention_bias", False),
        mlp_bias=fields.flag("mlp_bias", False),
        layer_windows=_windows(fields, _sliding_window(fields), first=0),
    )


def read_qwen2(fields: Fields) -> Family:
    """Return the settings of a "qwen2" config: biases on queries, keys and values.

    Nearly every published config has a `sliding_window` without effect: only `use_sliding_window:
    true` turns it on, and only from layer `max_window_layers` upwards.
    """
    window = _sliding_window(fields) if fields.flag("use_sliding_window", False) else None
    first = 0 if window is None else fields.integer("max_window_layers", 28, minimum=0)
    return Family(
        num_key_value_heads=_key_value_heads(fields, 32),
        max_position_embeddings=fields.integer("max_position_embeddings", 32768),
        attention_bias=True,
        output_bias=False,
        mlp_bias=False,
        layer_windows=_windows(fields, window, first),
    )


FAMILIES: Mapping[str, Callable[[Fields], Family]] = {
    "llama": read_llama,
    "mistral": read_mistral,
    "qwen2": read_qwen2,
}


def read_num_layers(fields: Fields) -> int:
    """Return the number of layers."""
    return fields.integer("num_hidden_layers", maximum=MAX_LAYERS)


def _key_value_heads(fields: Fields, default: int) -> int:
    """Return the number of key/value heads: `default` if missing, all heads if null."""
    if "num_key_value_heads" in fields:
        default = fields.integer("num_attention_heads")
    return fields.integer("num_key_value_heads", default)


def _sliding_window(fields: Fields) -> int | None:
    is_null = "sliding_window" in fields and fields.get("sliding_window") is None
    return None if is_null else fields.integer("sliding_window", 4096)


def _windows(fields: Fields, window: int | None, first: int) -> tuple[int | None, ...]:
    if fields.get("layer_types") is not None:
        return _stated_windows(fields, window)
    return tuple(window if index >= first else None for index in range(read_num_layers(fields)))


def _stated_windows(fields: Fields, window: int | None) -> tuple[int | None, ...]:
    """Return the windows that an explicit `layer_types` list defines."""
    allowed = {"full_attention": None, "attention": None, "sliding_attention": window}
    layer_types, num_layers = fields.get("layer_types"), read_num_layers(fields)
    if not isinstance(layer_types, list) or len(layer_types) != num_layers:
        raise fields.refusal("layer_types", f"a list of {num_layers} strings, one per layer")
    if any(not isinstance(kind, str) or kind not in allowed for kind in layer_types):
        raise fields.refusal("layer_types", "'full_attention' or 'sliding_attention' per layer")
    if window is None and "sliding_attention" in layer_types:
        raise fields.refusal("sliding_window", "a number where layer_types has sliding_attention")
    return tuple(allowed[kind] for kind in layer_types)
