"""Read the numbers of a drafter's decoder layer from its config.json and its shapes.

A config has one of three forms: flat as Llama's, keys under "model" (vLLM's copies), or keys under
"transformer_layer_config" (speculators), where values equal to Llama's defaults are missing.
"""

from collections.abc import Mapping
from typing import Any

from mlxspec.loading.heads.names import Renamed
from mlxspec.models.fields import Fields
from mlxspec.models.scaling import read_rope_scaling, read_rope_theta

IS_SPECULATORS = "transformer_layer_config"
_NESTED = ("model", IS_SPECULATORS)
_LLAMA_HEADS = 32  # default of LlamaConfig
_LLAMA_LENGTH = 2048


def layer_fields(config: Mapping[str, Any], place: str) -> Fields:
    """Return the keys of a config; those of a nested config have priority.

    Raises:
        UnsupportedModelError: The nested config is no JSON object.
    """
    merged = dict(config)
    for key in _NESTED:
        if config.get(key) is not None:
            section = Fields(config, place).section(key)
            merged |= {name: section.get(name) for name in config[key]}
    return Fields(merged, place)


def read_layer(fields: Fields, renamed: Renamed, layer: str) -> dict[str, Any]:
    """Return the numbers of the layer whose tensor names start with `layer`.

    Raises:
        UnsupportedModelError: A number is impossible, or missing and not known from a shape.
    """
    rows = renamed.size(f"{layer}.self_attn.q_proj.weight") or 0
    num_heads = _num_heads(fields, rows)
    head_dim = fields.integer("head_dim", max(rows // num_heads, 1))
    length = fields.integer("max_position_embeddings", _LLAMA_LENGTH)
    if fields.text("hidden_act", "silu") != "silu":
        raise fields.refusal("hidden_act", "'silu', the only activation supported")
    return {
        "hidden_size": renamed.size("fc.weight") or fields.integer("hidden_size"),
        "intermediate_size": renamed.size(f"{layer}.mlp.gate_proj.weight")
        or fields.integer("intermediate_size"),
        "num_attention_heads": num_heads,
        "num_key_value_heads": fields.integer("num_key_value_heads", num_heads),
        "head_dim": head_dim,
        "rms_norm_eps": fields.number("rms_norm_eps", 1e-6),
        "rope_theta": read_rope_theta(fields),
        "rope_scaling": read_rope_scaling(fields, length),
        "attention_bias": f"{layer}.self_attn.q_proj.bias" in renamed,
        "fc_bias": "fc.bias" in renamed,
    }


def named_target(config: Mapping[str, Any]) -> dict[str, str]:
    """Return the name of the target in a config of speculators; {} if it states none."""
    found: Any = config
    for key in ("speculators_config", "verifier", "name_or_path"):
        found = found.get(key) if isinstance(found, Mapping) else None
    return {"name": found} if isinstance(found, str) else {}


def _num_heads(fields: Fields, rows: int) -> int:
    if fields.get("num_attention_heads") is None and IS_SPECULATORS in fields:
        head_dim = fields.get("head_dim")
        return rows // fields.integer("head_dim") if head_dim is not None else _LLAMA_HEADS
    return fields.integer("num_attention_heads")
