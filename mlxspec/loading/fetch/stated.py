"""What a config.json states about a model, for a type of our own ports or only of mlx-lm.

A config of our own types is complete. For other types only common names can be read, because
mlx-lm's code decides the rest: sizes that are not stated are 0, and the size of keys and values is
an upper bound.
"""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from mlxspec.adapted.config import AdaptedConfig, context_length, named_sizes
from mlxspec.errors import UnsupportedModelError
from mlxspec.loading.model_types import is_in_mlx_lm
from mlxspec.loading.ports import is_ours
from mlxspec.models import ModelConfig
from mlxspec.models.config import FAMILIES
from mlxspec.models.fields import MAX_INTEGER

StatedConfig = ModelConfig | AdaptedConfig
"""The config of one of our ports, or what is known of another model before it is built."""


def stated_config(config: Mapping[str, Any]) -> StatedConfig:
    """Return the facts of a model from its config.json.

    Raises:
        UnsupportedModelError: Neither our ports nor mlx-lm have its type, or a value of one of our
            types is wrong.
    """
    if is_ours(config):
        return ModelConfig.from_dict(config)
    kind = config["model_type"]
    if not is_in_mlx_lm(kind):
        raise UnsupportedModelError(
            f"model_type {kind!r} is not supported: mlx-lm has no such type, and those of our own "
            f"are {', '.join(FAMILIES)}"
        )
    return _adapted(kind, config)


def _adapted(kind: str, config: Mapping[str, Any]) -> AdaptedConfig:
    inner = config.get("text_config")  # of models that also read images
    sizes = {**(inner if isinstance(inner, dict) else {}), **config}
    named = SimpleNamespace(**sizes)
    heads, stores = _count(sizes, "num_attention_heads"), _num_row_layers(sizes)
    head_dim = _count(sizes, "head_dim") or _count(sizes, "hidden_size") // max(1, heads)
    # Mlx-lm's code of the type decides in which form rows are kept.
    is_latent = sizes.get("kv_lora_rank") is not None
    return AdaptedConfig(
        model_type=kind,
        vocab_size=_count(sizes, "vocab_size"),
        hidden_size=_count(sizes, "hidden_size"),
        num_hidden_layers=_count(sizes, "num_hidden_layers"),
        num_row_stores=stores,
        num_states=0,
        head_dim=head_dim,
        kv_numbers=0 if is_latent else 2 * stores * _widest_row(sizes, heads, head_dim),
        max_position_embeddings=context_length(named),
        layer_windows=(),
        eos_token_ids=_ends(config.get("eos_token_id")),
        **named_sizes(named),
    )


def _widest_row(sizes: Mapping[str, Any], heads: int, head_dim: int) -> int:
    """Return the most numbers in a key or value: two kinds of layers can differ in it."""
    named = [name for name in sizes if not name.startswith(("linear_", "mamba_"))]
    kv_heads = [_count(sizes, name) for name in named if name.endswith("num_key_value_heads")]
    widths = [_count(sizes, name) for name in named if name.endswith("head_dim")]
    return max(kv_heads or [heads]) * max([head_dim, *widths])


def _num_row_layers(sizes: Mapping[str, Any]) -> int:
    """Return how many layers keep keys and values: recurrent ones keep none, loops repeat them."""
    loops = max(1, _count(sizes, "loop_num"), _count(sizes, "num_loops"))
    kinds = sizes.get("layer_types")
    if not isinstance(kinds, list):
        return loops * _count(sizes, "num_hidden_layers")
    return loops * sum("attention" in str(kind) and "linear" not in str(kind) for kind in kinds)


def _count(sizes: Mapping[str, Any], name: str) -> int:
    value = sizes.get(name)
    return value if isinstance(value, int) and 0 < value <= MAX_INTEGER else 0


def _ends(value: Any) -> tuple[int, ...]:
    tokens = value if isinstance(value, list) else [value]
    return tuple(token for token in tokens if isinstance(token, int))
