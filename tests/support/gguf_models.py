"""Tiny models of mlx-lm, written to GGUF files by llama.cpp's own package.

The names come from its `TensorNameMap`, the metadata keys from its `GGUFWriter`. What its converter
does to tensors is done here too: rows in another order, ones added to norms.
"""

import importlib

import gguf
import mlx.core as mx
import numpy as np
from mlx.utils import tree_flatten

from tests.support.gguf_files import VOCABULARY, as_llama_cpp_stores, tiny_config

BASE = tiny_config(
    **{"rms_norm_eps": 1e-3, "rope_theta": 5000.0, "rope_scaling": None},
    **{"attention_bias": False, "mlp_bias": False},
)
_NAMES = {
    "qwen2_moe": "qwen2moe",
    "qwen3_moe": "qwen3moe",
    "gemma3_text": "gemma3",
    "gpt_oss": "gpt-oss",
}


def build(config):
    """mlx-lm's model of a config."""
    module = importlib.import_module(f"mlx_lm.models.{config['model_type']}")
    return module.Model(module.ModelArgs.from_dict(config))


def random_model(config):
    """mlx-lm's model of a config, with random weights in norms and biases too."""
    model = build(config)
    if config.get("tie_word_embeddings"):
        model.sanitize({}) if config["model_type"] == "gemma3_text" else None
    draw = np.random.default_rng(5)
    for name, array in tree_flatten(model.parameters()):
        spread = 0.3 if array.ndim == 1 else 1.5 * array.shape[-1] ** -0.5
        values = draw.normal(size=array.shape) * spread
        model.load_weights([(name, mx.array(values.astype(np.float32)))], strict=False)
    return model


def write(path, config, model, settings, *, packed=None, factors=None):
    """Write a model to a GGUF file.

    `settings` are calls of the writer's `add_...` methods; `packed` are tensors of blocks in place
    of the model's, as {name: (bytes, type)}; `factors` are more float tensors by their GGUF name.
    """
    architecture = _NAMES.get(config["model_type"], config["model_type"])
    writer = gguf.GGUFWriter(path, architecture)
    _add_metadata(writer, config)
    for key, value in settings.items():
        getattr(writer, f"add_{key}")(value)
    kind = next(key for key, name in gguf.MODEL_ARCH_NAMES.items() if name == architecture)
    names = gguf.TensorNameMap(kind, config["num_hidden_layers"])
    for name, array in tree_flatten(model.parameters()):
        spelling = name.replace("switch_mlp", "experts")
        found = names.get_name(spelling, (".weight", ".bias"))
        assert found is not None, name
        if name.endswith(".sinks"):  # a parameter without a module
            found += ".weight"
        if packed and name in packed:
            raw, raw_type = packed[name]
            writer.add_tensor(found, raw, raw_dtype=raw_type)
        else:
            stored = as_llama_cpp_stores(name, np.array(array), config)
            adds_one = config["model_type"] in ("gemma2", "gemma3_text")
            writer.add_tensor(found, stored + (adds_one and name.endswith("norm.weight")))
    for name, array in (factors or {}).items():
        writer.add_tensor(name, np.asarray(array, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _add_metadata(writer, config):
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_key_length(config["head_dim"])
    writer.add_rope_freq_base(config["rope_theta"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(VOCABULARY)
    writer.add_token_types([1] * 23 + [3])
    writer.add_token_merges(["a b"])
    writer.add_eos_token_id(23)
