"""Tiny model folders that two ranks can share, with texts that do not repeat one token."""

from importlib import import_module

import mlx.core as mx
import numpy as np
from mlx.utils import tree_flatten

from mlxspec.models import ModelConfig, build_model
from tests.support.model_folders import save_folder, tiny_config

COMMON = {
    "vocab_size": 24,
    "hidden_size": 48,
    "intermediate_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 3,  # an odd number: two ranks get 2 and 1
    "head_dim": 8,
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
    "eos_token_id": 23,
}
FOLDERS = {
    "own": {"model_type": "llama"},
    "own-qwen2": {"model_type": "qwen2"},
    "tensor": {"model_type": "qwen3", "num_attention_heads": 4, "num_key_value_heads": 2},
    "pipeline": {"model_type": "qwen2"},  # by mlx-lm's code, which would cut through a head
}
"""Config by the name of a folder; all else is as in `COMMON`."""


def save_shared(folder, name, seed=5):
    """Write a folder; its weights are so large that each token depends on those before."""
    config = tiny_config() | COMMON | FOLDERS[name]
    weights, draw = {}, np.random.default_rng(seed)
    for key, array in tree_flatten(build_module(config).parameters()):
        scale, least = (0.1, 1.0) if "norm" in key else (0.4, 0.0)
        weights[key] = mx.array((least + scale * draw.normal(size=array.shape)).astype("f4"))
    return save_folder(folder, config, weights)


def build_module(config):
    """The model of a config: our own code for a Llama, that of mlx-lm for others."""
    if config["model_type"] == "llama":
        return build_model(ModelConfig.from_dict(config))
    module = import_module(f"mlx_lm.models.{config['model_type']}")
    return module.Model(module.ModelArgs.from_dict(config))
