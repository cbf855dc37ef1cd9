"""The architectures of GGUF files, and how each differs from Llama's files.

Known from llama.cpp's converter: the query and key rows of Llama, Granite and SmolLM3 are in the
order of interleaved rotary pairs; the norm weights of Gemma have one added; Phi-3 has one tensor
for queries, keys and values, Phi-3 and GLM-4 one for gate and up; all experts of a layer are one.

Names lead to those of mlx-lm's models, which are mostly Hugging Face's.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mlxspec.errors import UnsupportedModelError
from mlxspec.models.fields import Fields

_TOP_NAMES = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
_LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_PARAMETERS = ("self_attn.sinks",)  # not modules, so their names do not end in `.weight`
_LAYER_TENSOR = re.compile(r"blk\.(\d+)\.(\w+)\.(\w+)")

HEAD_NORMS = {"attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm"}
POST_NORMS = {
    "post_attention_norm": "post_attention_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}
FUSED_MLP = {"ffn_up": "mlp.gate_up_proj"}
EXPERTS = {
    "ffn_gate_inp": "mlp.gate",
    "ffn_gate_exps": "mlp.switch_mlp.gate_proj",
    "ffn_up_exps": "mlp.switch_mlp.up_proj",
    "ffn_down_exps": "mlp.switch_mlp.down_proj",
}
GPT_OSS = {
    "post_attention_norm": "post_attention_layernorm",
    "attn_sinks": "self_attn.sinks",
    "ffn_gate_inp": "mlp.router",
    "ffn_gate_exps": "mlp.experts.gate_proj",
    "ffn_up_exps": "mlp.experts.up_proj",
    "ffn_down_exps": "mlp.experts.down_proj",
}
SHARED_EXPERT = {
    "ffn_gate_inp_shexp": "mlp.shared_expert_gate",
    "ffn_gate_shexp": "mlp.shared_expert.gate_proj",
    "ffn_up_shexp": "mlp.shared_expert.up_proj",
    "ffn_down_shexp": "mlp.shared_expert.down_proj",
}

LONG_FACTORS, SHORT_FACTORS = "rope_factors_long.weight", "rope_factors_short.weight"
Factors = Mapping[str, list[float]]  # tensors by name: one divisor per frequency

_Settings = Callable[[Fields, dict[str, Any], Factors], dict[str, Any]]


@dataclass(frozen=True)
class Architecture:
    """One architecture."""

    model_type: str  # in a config.json
    names: Mapping[str, str] = field(default_factory=dict)  # those that differ from Llama's
    settings: _Settings = lambda fields, config, factors: {}  # those that Llama does not have
    is_permuted: bool = False  # query and key rows are in the order of interleaved pairs
    adds_one: bool = False  # norm weights are stored with one added
    has_experts: bool = False
    rotates_part: bool = False  # it may rotate only the first part of a head
    epsilon: str = "attention.layer_norm_rms_epsilon"  # metadata key of that of its norms


def _llama(fields: Fields, config: dict[str, Any], factors: Factors) -> dict[str, Any]:
    window = fields.get("attention.sliding_window")
    return {"model_type": "mistral", "sliding_window": window} if window else {}


def _experts(fields: Fields, config: dict[str, Any], factors: Factors) -> dict[str, Any]:
    return {
        "num_experts": fields.integer("expert_count"),
        "num_experts_per_tok": fields.integer("expert_used_count"),
        "moe_intermediate_size": fields.integer("expert_feed_forward_length"),
    }


def _qwen2_moe(fields: Fields, config: dict[str, Any], factors: Factors) -> dict[str, Any]:
    shared = fields.integer("expert_shared_feed_forward_length")
    return _experts(fields, config, factors) | {"shared_expert_intermediate_size": shared}


def _qwen3_moe(fields: Fields, config: dict[str, Any], factors: Factors) -> dict[str, Any]:
    every_layer = {"decoder_sparse_step": 1, "mlp_only_layers": [], "norm_topk_prob": True}
    return _experts(fields, config, factors) | every_layer


def _query_scalar(config: dict[str, Any], layers_of_largest: int) -> float:
    """Return the number under the square root that divides Gemma's scores; no file states it."""
    if config["num_hidden_layers"] == layers_of_largest:  # the 27B model of each generation
        return float(config["hidden_size"] / config["num_attention_heads"])
    return float(config["head_dim"])


def _gemma2(fields: Fields, config: dict[str, Any], factors: Factors) -> dict[str, Any]:
    return {
        "attn_logit_softcapping": fields.number("attn_logit_softcapping", 50.0),
        "final_logit_softcapping": fields.number("final_logit_softcapping", 30.0),
        "query_pre_attn_scalar": _query_scalar(config, 46),
    }


def _gemma3(fields: Fields, config: dict[str, Any], factors: Factors) -> dict[str, Any]:
    return {
        "rope_local_base_freq": fields.number("rope.freq_base_swa", 10000.0),
        "query_pre_attn_scalar": _query_scalar(config, 62),
        "sliding_window": fields.integer("attention.sliding_window"),
        "sliding_window_pattern": _period(fields),
    }


def _period(fields: Fields) -> int:
    """Return n if every n-th layer of a model sees all tokens, and the others see a window."""
    key = "attention.sliding_window_pattern"
    slides = fields.get(key)
    if not isinstance(slides, list):
        return fields.integer(key, 6)
    period = slides.index(False) + 1 if False in slides else 0
    if period == 0 or slides != [(index + 1) % period != 0 for index in range(len(slides))]:
        raise fields.refusal(key, "a period, after which one layer has no window")
    return period


def _phi3(fields: Fields, config: dict[str, Any], factors: Factors) -> dict[str, Any]:
    if config["rope_scaling"] is not None:
        raise fields.refusal("rope.scaling.type", "no type, with tensors of rotary factors")
    if LONG_FACTORS not in factors:
        return {}
    long, short = factors[LONG_FACTORS], factors.get(SHORT_FACTORS, [])
    rotated = config["head_dim"] * config["partial_rotary_factor"]
    if not len(long) == len(short) == rotated // 2:
        raise fields.refusal("rope.dimension_count", f"twice the {len(long)} rotary factors")
    scaling = {"type": "longrope", "long_factor": long, "short_factor": short}
    original = fields.integer("rope.scaling.original_context_length", 4096)
    return {"rope_scaling": scaling, "original_max_position_embeddings": original}


def _granite(fields: Fields, config: dict[str, Any], factors: Factors) -> dict[str, Any]:
    return {
        "attention_multiplier": fields.number("attention.scale", config["head_dim"] ** -0.5),
        "embedding_multiplier": fields.number("embedding_scale", 1.0),
        "residual_multiplier": fields.number("residual_scale", 1.0),
        "logits_scaling": fields.number("logit_scale", 1.0),
    }


def _olmo2(fields: Fields, config: dict[str, Any], factors: Factors) -> dict[str, Any]:
    if fields.get("attention.sliding_window"):  # OLMo 3, whose layers differ
        raise fields.refusal("attention.sliding_window", "no window")
    return {}


def _starcoder2(fields: Fields, config: dict[str, Any], factors: Factors) -> dict[str, Any]:
    return {"norm_epsilon": config["rms_norm_eps"]}


def _exaone4(fields: Fields, config: dict[str, Any], factors: Factors) -> dict[str, Any]:
    key = "attention.sliding_window_pattern"
    if not fields.get("attention.sliding_window"):
        return {"sliding_window": None, "sliding_window_pattern": None}
    slides = fields.get(key) or [True, True, True, False]
    if not isinstance(slides, list) or not {True, False} <= set(slides):
        raise fields.refusal(key, "a list with true and false, one a layer")
    pattern = "".join("L" if is_local else "G" for is_local in slides)
    window = fields.integer("attention.sliding_window")
    return {"sliding_window": window, "sliding_window_pattern": pattern}


def _glm4(fields: Fields, config: dict[str, Any], factors: Factors) -> dict[str, Any]:
    if fields.get("rope.dimension_sections"):  # the vision model, whose rows are permuted
        raise fields.refusal("rope.dimension_sections", "a model of text alone")
    return {"rope_traditional": True}


def _gpt_oss(fields: Fields, config: dict[str, Any], factors: Factors) -> dict[str, Any]:
    experts = _experts(fields, config, factors)
    types = ("sliding_attention", "full_attention")  # alternating; no file states it
    return {
        **experts,
        "num_local_experts": experts["num_experts"],
        "intermediate_size": experts["moe_intermediate_size"],
        "sliding_window": fields.integer("attention.sliding_window"),
        "layer_types": [types[layer % 2] for layer in range(config["num_hidden_layers"])],
    }


_GEMMA2_NAMES = {**POST_NORMS, "ffn_norm": "pre_feedforward_layernorm"}
_OLMO2_NAMES = {**POST_NORMS, **HEAD_NORMS}
_GLM4_NAMES = {
    **FUSED_MLP,
    "post_attention_norm": "post_self_attn_layernorm",
    "post_ffw_norm": "post_mlp_layernorm",
}
_PHI3_NAMES = {**FUSED_MLP, "attn_qkv": "self_attn.qkv_proj"}
_STARCODER2_NAMES = {"ffn_up": "mlp.c_fc", "ffn_down": "mlp.c_proj"}

ARCHITECTURES: Mapping[str, Architecture] = {
    "llama": Architecture("llama", settings=_llama, is_permuted=True),
    "qwen2": Architecture("qwen2"),
    "qwen3": Architecture("qwen3", HEAD_NORMS),
    "qwen2moe": Architecture(
        "qwen2_moe", {**EXPERTS, **SHARED_EXPERT}, _qwen2_moe, has_experts=True
    ),
    "qwen3moe": Architecture("qwen3_moe", {**HEAD_NORMS, **EXPERTS}, _qwen3_moe, has_experts=True),
    "gemma2": Architecture("gemma2", _GEMMA2_NAMES, _gemma2, adds_one=True),
    "gemma3": Architecture("gemma3_text", {**_GEMMA2_NAMES, **HEAD_NORMS}, _gemma3, adds_one=True),
    "phi3": Architecture("phi3", _PHI3_NAMES, _phi3, rotates_part=True),
    "granite": Architecture("granite", settings=_granite, is_permuted=True),
    "olmo2": Architecture("olmo2", _OLMO2_NAMES, _olmo2),
    "smollm3": Architecture("smollm3", is_permuted=True),
    "starcoder2": Architecture(
        "starcoder2", _STARCODER2_NAMES, _starcoder2, epsilon="attention.layer_norm_epsilon"
    ),
    "exaone4": Architecture("exaone4", _OLMO2_NAMES, _exaone4),
    "glm4": Architecture("glm4", _GLM4_NAMES, _glm4, rotates_part=True),
    "gpt-oss": Architecture("gpt_oss", GPT_OSS, _gpt_oss, has_experts=True),
}


def hf_name(path: Path, name: str, differing: Mapping[str, str]) -> str:
    """Return the name of a tensor in the model; `differing` maps those that Llama's do not have."""
    top, _, kind = name.rpartition(".")
    if top in _TOP_NAMES:
        return f"{_TOP_NAMES[top]}.{kind}"
    match = _LAYER_TENSOR.fullmatch(name)
    part = match and differing.get(match[2], _LAYER_NAMES.get(match[2]))
    if match is None or part is None:
        raise UnsupportedModelError(f"{path} holds the tensor {name}, which no model here has")
    ending = "" if part in _PARAMETERS else f".{match[3]}"
    return f"model.layers.{match[1]}.{part}{ending}"
