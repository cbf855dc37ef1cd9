"""Writes tiny folders of a type that has no port: mlx-lm's code runs them."""

from importlib import import_module

import mlx.core as mx
from mlx import nn
from mlx.utils import tree_flatten

from tests.support.model_folders import save_folder, tiny_config

QWEN3 = {
    "model_type": "qwen3",
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "intermediate_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "rms_norm_eps": 1e-6,
    "max_position_embeddings": 512,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
    "eos_token_id": 1,
}


def save_foreign(folder, *, bits=0, dtype=mx.float32, extra=None, **changes):
    """Write a folder of the type qwen3; `extra` holds weights that mlx-lm leaves out."""
    config = QWEN3 | {"vocab_size": tiny_config()["vocab_size"]} | changes
    module = import_module("mlx_lm.models.qwen3")
    mx.random.seed(3)
    model = module.Model(module.ModelArgs.from_dict(config))
    model.set_dtype(dtype)
    if bits:
        nn.quantize(model, group_size=32, bits=bits)
        config["quantization"] = {"group_size": 32, "bits": bits}
    weights = dict(tree_flatten(model.parameters()))
    return save_folder(folder, config, weights | (extra or {}))
