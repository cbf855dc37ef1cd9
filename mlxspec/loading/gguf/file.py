"""Read a GGUF file as a checkpoint with the names and the row order of Hugging Face.

llama.cpp permutes the rows of the query and key projections of Llama models for interleaved rotary
embeddings. This module reverses the permutation. It does so for quantised triples too, because all
parts of a triple have the same rows. Qwen2 files are not permuted.
"""

import re
from collections import Counter
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np

from mlxspec.errors import UnsupportedModelError
from mlxspec.loading.checkpoint import Checkpoint
from mlxspec.loading.gguf.config import check_architecture, gguf_config
from mlxspec.loading.gguf.header import read_header
from mlxspec.loading.gguf.tensors import GROUP_SIZE, read_tensors
from mlxspec.loading.gguf.tokenizer import tokenizer_from_gguf

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
_LAYER_TENSOR = re.compile(r"blk\.(\d+)\.(\w+)\.(\w+)")
_ROPE_FACTORS = "rope_freqs.weight"


def read_gguf(path: Path) -> Checkpoint:
    """Return the checkpoint in a GGUF file.

    Raises:
        UnsupportedModelError: The file is damaged, or of an unsupported family or tensor type.
    """
    header = read_header(path)
    architecture = check_architecture(path, header)
    tokenizer = tokenizer_from_gguf(path, header.metadata)
    stored = read_tensors(path, header.tensors)
    factors = stored.pop(_ROPE_FACTORS, None)
    config = gguf_config(path, header, None if factors is None else np.ravel(factors).tolist())
    tensors = {_hf_name(path, name): array for name, array in stored.items()}
    if architecture == "llama":
        _unpermute(tensors, "q_proj", config["num_attention_heads"], config["head_dim"])
        _unpermute(tensors, "k_proj", config["num_key_value_heads"], config["head_dim"])
    return Checkpoint(config, tensors, tokenizer, _quantization(tensors))


def _hf_name(path: Path, name: str) -> str:
    top, _, kind = name.rpartition(".")
    if top in _TOP_NAMES:
        return f"{_TOP_NAMES[top]}.{kind}"
    match = _LAYER_TENSOR.fullmatch(name)
    if match is None or match[2] not in _LAYER_NAMES:
        raise UnsupportedModelError(f"{path} holds the tensor {name}, which no model here has")
    return f"model.layers.{match[1]}.{_LAYER_NAMES[match[2]]}.{match[3]}"


def _unpermute(tensors: dict[str, mx.array], projection: str, heads: int, head_dim: int) -> None:
    """Put the rows of one projection into the order of half-split rotary embeddings."""
    for name, array in tensors.items():
        # A tensor of another shape is not changed; loading the weights reports it by name.
        if name.split(".")[-2] == projection and array.shape[0] == heads * head_dim:
            pairs = array.reshape(heads, head_dim // 2, 2, *array.shape[1:])
            tensors[name] = pairs.swapaxes(1, 2).reshape(array.shape)


def _quantization(tensors: dict[str, mx.array]) -> dict[str, Any] | None:
    """Return the settings of MLX's quantised triples, with exceptions for modules of other bits."""
    bits: dict[str, int] = {}
    for name, scales in tensors.items():
        path = name.removesuffix(".scales")
        if path != name and f"{path}.weight" in tensors:
            columns = scales.shape[-1] * GROUP_SIZE
            bits[path] = tensors[f"{path}.weight"].shape[-1] * 32 // columns
    if not bits:
        return None
    most = Counter(bits.values()).most_common(1)[0][0]
    others = {
        path: {"group_size": GROUP_SIZE, "bits": width}
        for path, width in bits.items()
        if width != most
    }
    return {"group_size": GROUP_SIZE, "bits": most, **others}
