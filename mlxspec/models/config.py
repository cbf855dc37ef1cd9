"""A model's config: a Hugging Face config.json, checked and with every default filled in.

Every setting has one form here: windows are per layer, end tokens are a tuple, rope settings have
one spelling. `families.py` reads the settings in which families differ.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mlxspec.errors import OtherPortError, UnsupportedModelError
from mlxspec.models.families import FAMILIES, read_num_layers
from mlxspec.models.fields import MAX_INTEGER, Fields
from mlxspec.models.rope import read_rope_scaling, read_rope_theta
from mlxspec.models.target_model import TargetConfig
from mlxspec.params.checks import set_fields


@dataclass(frozen=True, kw_only=True)
class ModelConfig(TargetConfig):
    """All settings that define what a model of ours computes, except its weights.

    `model_type` is a key of `FAMILIES`; no number is 0.
    """

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
        """Return the model config of a parsed config.json.

        A missing or null key has the default of Hugging Face. Keys that do not change the
        computation are ignored. All else is an UnsupportedModelError.
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
