"""Hostile trained drafters for `fuzz.py`: heads in every layout, and the files of mlxspec's own."""

import json
import shutil
from pathlib import Path
from random import Random

import mlx.core as mx

from mlxspec.decoder.decoder import Decoder
from mlxspec.drafting.heads import head_drafters
from mlxspec.errors import MlxspecError
from mlxspec.loading import load_head
from mlxspec.loading.heads.file import read_drafter_file, save_head
from mlxspec.loading.load import load_draft_model_file
from mlxspec.loading.profile import tokenizer_of
from mlxspec.models import ModelConfig, build_model
from tests.campaigns.fuzz_damage import damaged_json, damaged_safetensors, hostile_value
from tests.loading.test_heads import CARD, own_heads
from tests.loading.test_layouts import variants
from tests.support.head_folders import LAYER, TOKENS, save_head_folder, tiny_target
from tests.support.model_folders import random_model, random_weights, save_folder, tiny_config


def build(source: Path, config: ModelConfig, target: Decoder) -> None:
    """Load a head and build the drafter of every way that it may be meant."""
    read_drafter_file(source) if source.is_file() else None
    for drafter in head_drafters(load_head(source, config), target):
        assert drafter.name


class HeadTarget:
    """Folders of other projects' heads: the config or the weights are damaged."""

    refusals = (MlxspecError,)

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "sound"
        self._variants = {name: (stored, config) for name, _, stored, config, _ in variants()}
        for name, (tensors, config) in self._variants.items():
            save_head_folder(self._folder / name, tensors, config)
        self._config = tiny_target()
        self._decoder = Decoder(build_model(self._config))

    def make(self, draw: Random, folder: Path) -> str:
        name = draw.choice(list(self._variants))
        place = folder / "head"
        shutil.copytree(self._folder / name, place)
        what = [name]
        for _ in range(draw.choice([1, 1, 2])):
            path = place / draw.choice(["config.json", "config.json", "model.safetensors"])
            if path.suffix == ".safetensors":
                how, data = damaged_safetensors(path.read_bytes(), draw)
            elif draw.random() < 0.3 or not self._variants[name][1]:
                how, data = damaged_json(path.read_bytes(), draw)
            else:
                how, data = _other_config(self._variants[name][1], draw)
            path.write_bytes(data)
            what.append(f"{path.name} {how}")
            if path.suffix == ".safetensors":
                break
        return ", ".join(what)

    def read(self, folder: Path) -> None:
        build(folder / "head", self._config, self._decoder)


_KEYS = (
    *("eagle_aux_hidden_state_layer_ids", "eagle_config", "transformer_layer_config", "model"),
    *("speculators_config", "norm_before_residual", "norm_before_fc", "fc_norm", "norm_output"),
    *("layernorms", "truncated_vocab_size", "original_lm_head", "base_model_name_or_path"),
    *("rope_scaling", "rope_parameters", "quantization", "hidden_act"),
)


def _other_config(config: dict, draw: Random) -> tuple[str, bytes]:
    key = draw.choice([*config, *_KEYS])
    value = hostile_value(draw)
    if draw.random() < 0.3:
        value = {draw.choice([*config, *_KEYS]): hostile_value(draw)}
    return f"{key} = {value!r:.60}", json.dumps(config | {key: value}).encode()


class OwnHeadTarget:
    """Files of mlxspec's own: metadata and tensors damaged."""

    refusals = (MlxspecError,)

    def __init__(self, folder: Path) -> None:
        self._heads = own_heads()
        for kind, (config, tensors) in self._heads.items():
            save_head(folder / f"{kind}.safetensors", kind, config, tensors, CARD)
        self._folder = folder
        self._config = tiny_target()
        self._decoder = Decoder(build_model(self._config))

    def make(self, draw: Random, folder: Path) -> str:
        kind = draw.choice(list(self._heads))
        place = folder / "head.safetensors"
        if draw.random() < 0.4:
            what, data = damaged_safetensors(
                (self._folder / f"{kind}.safetensors").read_bytes(), draw
            )
            place.write_bytes(data)
            return f"{kind}: {what}"
        config, tensors = self._heads[kind]
        keys = ("rope_scaling", "quantization", "capture_alternatives", "accuracies", "calibration")
        key = draw.choice([*config, *keys])
        values = [hostile_value(draw), [hostile_value(draw)], [[hostile_value(draw)]]]
        value = draw.choice(values)
        if key == "quantization":
            value = draw.choice([value, {"group_size": 4, "bits": hostile_value(draw)}])
        save_head(place, kind, config | {key: value}, _renamed(tensors, draw), CARD)
        return f"{kind}: {key} = {value!r:.60}"

    def read(self, folder: Path) -> None:
        build(folder / "head.safetensors", self._config, self._decoder)


def _renamed(tensors: dict, draw: Random) -> dict:
    if draw.random() < 0.7:
        return tensors
    old = draw.choice(list(tensors))
    new = draw.choice(["token_map", "target_ids", f"{old}.scales", old.replace("weight", "scales")])
    arrays = [mx.array(TOKENS), mx.array([2**31 - 1]), mx.array(-1), mx.zeros((0,)), tensors[old]]
    return tensors | {new: draw.choice(arrays)}


class DraftModelTarget:
    """Draft models in one file, whose tokenizer is the target's."""

    refusals = (MlxspecError,)

    def __init__(self, folder: Path) -> None:
        config = tiny_config()
        save_folder(folder / "target", config)
        self._tokenizer = tokenizer_of(folder / "target", ModelConfig.from_dict(config))
        self._config = config
        self._tensors = {name: mx.array(a) for name, a in random_weights(config).items()}
        save_head(folder / "m.safetensors", "draft-model", config, self._tensors, CARD)
        self._sound = (folder / "m.safetensors").read_bytes()
        assert random_model(config) is not None

    def make(self, draw: Random, folder: Path) -> str:
        place = folder / "m.safetensors"
        if draw.random() < 0.5:
            what, data = damaged_safetensors(self._sound, draw)
            place.write_bytes(data)
            return what
        key, value = draw.choice([*self._config, *_KEYS, *LAYER]), hostile_value(draw)
        save_head(place, "draft-model", self._config | {key: value}, self._tensors, CARD)
        return f"{key} = {value!r:.60}"

    def read(self, folder: Path) -> None:
        loaded = load_draft_model_file(folder / "m.safetensors", self._tokenizer)
        decoder = Decoder(loaded.model)
        decoder.observe([0, 1])
        mx.eval(decoder.next_logits())
