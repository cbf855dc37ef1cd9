"""A model's config: a Hugging Face config.json, checked and with every default filled in.

Every setting has one form here: windows are per layer, end tokens are a tuple, rope settings have
one spelling. Differences between families are in the family's own file (`llama.py`, `qwen2.py`).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from mlxspec.errors import OtherPortError, UnsupportedModelError
from mlxspec.models.family import Family, read_num_layers
from mlxspec.models.fields import MAX_INTEGER, Fields
from mlxspec.models.llama import read_llama, read_mistral
from mlxspec.models.qwen2 import read_qwen2
from mlxspec.models.scaling import ROPE_TYPES, read_rope_scaling, read_rope_theta

FAMILIES: Mapping[str, Callable[[Fields], Family]] = {
    "llama": read_llama,
    "mistral": read_mistral,
    "qwen2": read_qwen2,
}


@dataclass(frozen=True)
class ModelConfig:
    """All settings that define what a model computes, except its weights.

    Attributes:
        model_type: A key of `FAMILIES`.
        vocab_size: Rows of the embedding, V.
        hidden_size: Width of the residual stream, D.
        intermediate_size: Width inside the MLP.
        num_key_value_heads: Key/value heads; a divisor of the query heads.
        head_dim: Size of one head, even; need not be hidden_size / num_attention_heads.
        max_position_embeddings: Context length of the model, in tokens.
        rms_norm_eps: Added to the mean square before the square root.
        rope_theta: Base of the rotary frequencies.
        rope_scaling: `rope_type` and its numbers (see `scaling.py`), or None.
        tie_word_embeddings: Whether the embedding is also the output head.
        attention_bias: Whether the query, key and value projections add a bias.
        output_bias: Whether the attention's output projection adds one.
        mlp_bias: Whether the three projections of the MLP add one.
        layer_windows: Per layer, the number of latest tokens that a token attends to (itself
            included), or None for the whole past.
        eos_token_ids: Tokens that end a reply; empty if the config has none.
    """

    model_type: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    max_position_embeddings: int
    rms_norm_eps: float
    rope_theta: float
    rope_scaling: Mapping[str, Any] | None
    tie_word_embeddings: bool
    attention_bias: bool
    output_bias: bool
    mlp_bias: bool
    layer_windows: tuple[int | None, ...]
    eos_token_ids: tuple[int, ...]

    @property
    def shape_words(self) -> str:
        return (
            f"{self.num_hidden_layers} layers of {self.hidden_size} and "
            f"{self.intermediate_size}, {self.num_attention_heads} and "
            f"{self.num_key_value_heads} heads of {self.head_dim}, vocabulary {self.vocab_size}"
        )

    @property
    def num_row_stores(self) -> int:
        """Pairs of keys and values that a cache stores per token: one per layer."""
        return self.num_hidden_layers

    @property
    def row_windows(self) -> tuple[int | None, ...]:
        """None for every layer: a cache keeps all rows, and masks hide those outside a window."""
        return (None,) * self.num_hidden_layers

    @property
    def row_numbers(self) -> tuple[int, ...]:
        return (2 * self.num_key_value_heads * self.head_dim,) * self.num_hidden_layers

    @property
    def kv_numbers(self) -> int:
        return sum(self.row_numbers)

    @property
    def num_states(self) -> int:
        return 0

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
        if len(self.layer_windows) != self.num_hidden_layers:
            raise UnsupportedModelError(
                f"layer_windows has {len(self.layer_windows)} entries; num_hidden_layers is "
                f"{self.num_hidden_layers}"
            )
        if self.rope_scaling is not None and self.rope_scaling.get("rope_type") not in ROPE_TYPES:
            raise UnsupportedModelError(
                f"rope_scaling is {dict(self.rope_scaling)}; its rope_type must be one of "
                f"{', '.join(ROPE_TYPES)}"
            )

    @staticmethod
    def from_dict(config: Mapping[str, Any]) -> "ModelConfig":
        """Return the model config of a parsed config.json.

        A missing or null key has the default of Hugging Face. Keys that do not change the
        computation are ignored.

        Raises:
            UnsupportedModelError: The family, activation or rope type is not supported, a key
                without a default is missing, or a value has the wrong type or range.
        """
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
            num_key_value_heads=family.num_key_value_heads,
            head_dim=_head_dim(fields),
            max_position_embeddings=family.max_position_embeddings,
            rms_norm_eps=fields.number("rms_norm_eps", 1e-6),
            rope_theta=read_rope_theta(fields),
            rope_scaling=read_rope_scaling(fields, family.max_position_embeddings),
            tie_word_embeddings=fields.flag("tie_word_embeddings", False),
            attention_bias=family.attention_bias,
            output_bias=family.output_bias,
            mlp_bias=family.mlp_bias,
            layer_windows=family.layer_windows,
            eos_token_ids=_eos_token_ids(fields),
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
