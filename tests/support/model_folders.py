"""Writes tiny model folders in the layouts of Hugging Face and MLX."""

import json

import mlx.core as mx
import numpy as np
from mlx.utils import tree_flatten
from tokenizers import Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE

from mlxspec.models import Model, ModelConfig, build_model
from tests.support.gguf_files import (
    VOCABULARY,
    as_llama_cpp_stores,
    floats,
    gguf_bytes,
    gguf_name,
    tiny_config,
    tiny_metadata,
)

__all__ = [
    *("gguf_tensors", "random_model", "random_weights", "save_folder", "save_gguf", "save_json"),
    "tiny_config",
]


def random_weights(config, seed=0) -> dict[str, np.ndarray]:
    """A model's parameters by name, from a fixed seed."""
    draw = np.random.default_rng(seed)
    model = build_model(ModelConfig.from_dict(config))
    return {
        name: (draw.normal(size=array.shape) * 0.3).astype("f4")
        for name, array in tree_flatten(model.parameters())
    }


def random_model(config, seed=0) -> Model:
    """The model of `random_weights`."""
    model = build_model(ModelConfig.from_dict(config))
    weights = random_weights(config, seed)
    model.load_weights([(name, mx.array(array)) for name, array in weights.items()])
    return model


def save_json(path, content) -> None:
    path.write_text(json.dumps(content))


def save_folder(folder, config=None, weights=None, *, shards=1, **extra):
    """Write a folder with config, tokenizer and weights, in one file or in shards.

    `extra` holds the content of further JSON files by their stem.
    """
    config = config or tiny_config()
    weights = weights or {name: mx.array(array) for name, array in random_weights(config).items()}
    folder.mkdir(exist_ok=True)
    save_json(folder / "config.json", config)
    for stem, content in extra.items():
        save_json(folder / f"{stem}.json", content)
    save_tokenizer(folder)
    if shards == 1:
        mx.save_safetensors(str(folder / "model.safetensors"), weights)
        return folder
    weight_map = {}
    names = sorted(weights)
    for index in range(shards):
        file = f"model-{index + 1:05}-of-{shards:05}.safetensors"
        part = {name: weights[name] for name in names[index::shards]}
        mx.save_safetensors(str(folder / file), part)
        weight_map |= dict.fromkeys(part, file)
    save_json(folder / "model.safetensors.index.json", {"weight_map": weight_map})
    return folder


def gguf_tensors(config):
    """The tensors of a tiny model as llama.cpp's converter stores them."""
    return {
        gguf_name(name): floats(as_llama_cpp_stores(name, array, config))
        for name, array in random_weights(config).items()
    }


def save_gguf(path, config=None, *, tensors=None, **metadata):
    """Write a tiny model as a GGUF file; `tensors` and `metadata` change it, and None drops one."""
    config = config or tiny_config()
    stored, stated = gguf_tensors(config) | (tensors or {}), tiny_metadata(config, **metadata)
    parts = ({key: x for key, x in part.items() if x is not None} for part in (stated, stored))
    path.write_bytes(gguf_bytes(*parts))
    return path


def save_tokenizer(folder) -> None:
    """Write the tokenizer of the tiny GGUF files as a folder holds it."""
    ids = {token: index for index, token in enumerate(VOCABULARY)}
    backend = Tokenizer(BPE(ids, [("a", "b")]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(["<|end|>"])
    backend.save(str(folder / "tokenizer.json"))
    save_json(folder / "tokenizer_config.json", {"eos_token": "<|end|>"})
