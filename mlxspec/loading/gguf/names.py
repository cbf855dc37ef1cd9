"""Translate the names of GGUF tensors to those of mlx-lm's models, which are mostly Hugging Face's.

The tables of the package `gguf` lead the other way, from many spellings to one name. An
architecture states the names in which it differs from Llama.
"""

import re
from collections.abc import Mapping
from pathlib import Path

from mlxspec.errors import UnsupportedModelError

_TOP_NAMES = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
}
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


def hf_name(path: Path, name: str, differing: Mapping[str, str]) -> str:
    """Return the name that a tensor of the file has in the model.

    `differing` maps the names in which its architecture differs from Llama, without layer and kind.

    Raises:
        UnsupportedModelError: The architecture has no such tensor.
    """
    top, _, kind = name.rpartition(".")
    if top in _TOP_NAMES:
        return f"{_TOP_NAMES[top]}.{kind}"
    match = _LAYER_TENSOR.fullmatch(name)
    part = match and differing.get(match[2], _LAYER_NAMES.get(match[2]))
    if match is None or part is None:
        raise UnsupportedModelError(f"{path} holds the tensor {name}, which no model here has")
    if part in _PARAMETERS:
        return f"model.layers.{match[1]}.{part}"
    return f"model.layers.{match[1]}.{part}.{match[3]}"
