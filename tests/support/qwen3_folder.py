"""A tiny folder of a type that has no port here, so that mlx-lm's code runs it."""

from importlib import import_module

import mlx.core as mx
from mlx import nn
from mlx.utils import tree_flatten

from tests.support.model_folders import save_folder, save_json, tiny_config

QWEN3 = tiny_config(
    "qwen3",
    **{"rms_norm_eps": 1e-6, "max_position_embeddings": 512, "tie_word_embeddings": True},
    eos_token_id=1,
)


def save_qwen3(folder, seed=3, *, shards=1, **changes):
    """Write the folder, with random weights that make confident texts; `changes` are its config."""
    config, model = _model(seed, changes)
    weights = {name: 6 * array for name, array in tree_flatten(model.parameters())}
    return save_folder(folder, config, weights, shards=shards)


def save_foreign(folder, *, bits=0, dtype=mx.float32, extra=None, **changes):
    """Write a folder of the type qwen3; `extra` holds weights that mlx-lm leaves out."""
    config, model = _model(3, {"tie_word_embeddings": False} | changes)
    model.set_dtype(dtype)
    if bits:
        nn.quantize(model, group_size=32, bits=bits)
        config["quantization"] = {"group_size": 32, "bits": bits}
    weights = dict(tree_flatten(model.parameters()))
    return save_folder(folder, config, weights | (extra or {}))


def save_adapter(folder):
    """Write an adapter (LoRA) for such a model that changes its texts."""
    folder.mkdir()
    parameters = {"rank": 2, "scale": 40.0, "dropout": 0.0}
    save_json(
        folder / "adapter_config.json",
        {"fine_tune_type": "lora", "num_layers": 2, "lora_parameters": parameters},
    )
    mx.random.seed(11)
    names = [f"model.layers.{layer}.self_attn.q_proj" for layer in range(2)]
    rows = QWEN3["num_attention_heads"] * QWEN3["head_dim"]
    weights = {f"{name}.lora_a": mx.random.normal((QWEN3["hidden_size"], 2)) for name in names}
    weights |= {f"{name}.lora_b": mx.random.normal((2, rows)) for name in names}
    mx.save_safetensors(str(folder / "adapters.safetensors"), weights)
    return folder


def _model(seed, changes):
    config = QWEN3 | changes
    module = import_module("mlx_lm.models.qwen3")
    mx.random.seed(seed)
    return config, module.Model(module.ModelArgs.from_dict(config))
