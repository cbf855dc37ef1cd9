"""Whose code runs a model of a type that we have a port of, where our port cannot read it."""

import mlx.core as mx
import numpy as np
import pytest
from mlx import nn
from mlx.utils import tree_flatten
from mlx_lm.utils import MODEL_REMAPPING
from mlx_lm.utils import load_model as load_module

import mlxspec
from mlxspec.adapted.model import AdaptedModel
from mlxspec.errors import UnsupportedModelError
from mlxspec.loading import load_model
from mlxspec.loading.fetch.models import describe_model
from mlxspec.loading.folder import read_config
from mlxspec.loading.ports import is_ours, is_runnable, stated_config
from mlxspec.loading.profile import read_profile
from mlxspec.models import ModelConfig
from tests.loading.test_mlx_lm import PROMPT, greedy, text_of
from tests.support.device_facts import believe
from tests.support.model_folders import save_folder, save_json, tiny_config
from tests.support.qwen3_folder import QWEN3
from tests.support.qwen3_folder import save_qwen3 as save
from tests.support.tiny import text_logits

pytestmark = pytest.mark.usefixtures("shared_home")


def awq(folder):
    """Pack the projections of a folder as AutoAWQ does."""
    weights, draw = mx.load(str(folder / "model.safetensors")), np.random.default_rng(0)
    for name in [name for name in weights if name.endswith("_proj.weight")]:
        outputs, inputs = weights.pop(name).shape
        path, groups = name.removesuffix("weight"), (inputs // 32, outputs // 8)
        words = draw.integers(0, 2**32, (inputs, outputs // 8), np.uint32).view(np.int32)
        weights[path + "qweight"] = mx.array(words)
        weights[path + "qzeros"] = mx.array(np.full(groups, 0x88888888, np.uint32).view(np.int32))
        weights[path + "scales"] = mx.full((inputs // 32, outputs), 0.02, mx.float16)
    mx.save_safetensors(str(folder / "model.safetensors"), weights)


def mxfp4(folder):
    """Pack the projections of a folder as MLX does, without saying so as MLX does."""
    module, _ = load_module(folder)
    nn.quantize(module, 32, 4, mode="mxfp4", class_predicate=lambda path, _: "_proj" in path)
    mx.save_safetensors(str(folder / "model.safetensors"), dict(tree_flatten(module.parameters())))


FOREIGN = {
    "rope_traditional": ({"rope_traditional": True}, None),
    "layer_types": (
        {"layer_types": ["full_attention", "sliding_attention"], "sliding_window": 8},
        None,
    ),
    "rope type 'dynamic'": ({"rope_scaling": {"type": "dynamic", "factor": 2.0}}, None),
    "method 'awq'": (
        {"quantization_config": {"quant_method": "awq", "bits": 4, "group_size": 32}},
        awq,
    ),
    "method 'mxfp4'": ({"quantization_config": {"quant_method": "mxfp4"}}, mxfp4),
}


@pytest.mark.parametrize("port", ["own", "mlx-lm"])
def test_the_mode_of_packed_weights_is_told_as_another_type(tmp_path, port, monkeypatch):
    """Its kernels cost something else, so its costs are kept apart."""
    folder = save_folder(tmp_path / "m")
    mxfp4(folder)
    stated = {"group_size": 32, "bits": 4, "mode": "mxfp4"}
    save_json(folder / "config.json", tiny_config(quantization=stated))
    assert read_profile(folder).weights == "mxfp4 4-bit"
    believe("gpu", monkeypatch.setattr)
    assert load_model(folder, port=port).weights == "mxfp4 4-bit"


@pytest.mark.parametrize("what", FOREIGN)
def test_what_our_port_of_a_type_cannot_read_mlx_lms_code_runs(tmp_path, what):
    changes, pack = FOREIGN[what]
    folder = save_folder(tmp_path / "m")
    if pack:
        pack(folder)
    save_json(folder / "config.json", tiny_config(**changes))
    assert not is_ours(read_config(folder))
    assert not isinstance(stated_config(read_config(folder)), ModelConfig)
    with pytest.raises(UnsupportedModelError, match=what):
        load_model(folder, port="own")
    engine, (module, _) = mlxspec.load(folder, drafter="pool"), load_module(folder)
    assert isinstance(engine.target.model, AdaptedModel)
    assert text_of(engine) == greedy(module, engine.tokenizer.eos_token_ids)
    described = describe_model(folder, "m", "m")
    assert described.problem == ""
    assert described.profile.packing in ("float32", "4-bit")


def test_a_way_of_quantising_that_a_file_of_its_own_states_is_not_ours(tmp_path):
    folder = save_folder(tmp_path / "m", hf_quant_config={"quantization": {"quant_algo": "NVFP4"}})
    assert not is_ours(read_config(folder))


def test_biases_that_a_mistral_config_states_are_those_of_mlx_lm(tmp_path):
    stated = {"attention_bias": True, "mlp_bias": True, "sliding_window": None}
    folder = save_folder(tmp_path / "m", tiny_config("mistral", **stated))
    module, _ = load_module(folder)
    ours = text_logits(load_model(folder).model, PROMPT)
    np.testing.assert_allclose(ours, module(mx.array([PROMPT]))[0], atol=1e-4)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"quantization_config": {"quant_method": "hqq"}}, "method 'hqq'.*mlx-lm cannot load it"),
        ({"rope_scaling": {"type": "spiral"}}, "rope type 'spiral'.*mlx-lm cannot load it"),
        ({"model_file": "evil.py"}, "'model_file' is 'evil.py'.*mlx-lm cannot load it"),
    ],
)
def test_what_neither_port_can_read_is_named_by_both(tmp_path, changes, words):
    folder = save_folder(tmp_path / "m")
    if "quantization_config" in changes:
        awq(folder)
    save_json(folder / "config.json", tiny_config(**changes))
    with pytest.raises(UnsupportedModelError, match=words):
        load_model(folder)


@pytest.mark.parametrize(
    "changes",
    [
        {"hidden_act": "gelu"},  # mlx-lm's llama has one activation, whatever is stated
        {"rope_traditional": True, "rope_parameters": {"rope_theta": 5e5}},
        {"rope_traditional": True, "tie_word_embeddings": None},
        {"rope_traditional": True, "num_attention_heads": 0},
    ],
)
def test_what_mlx_lm_would_misread_is_refused(tmp_path, changes):
    folder = save_folder(tmp_path / "m")
    save_json(folder / "config.json", tiny_config(**changes))
    with pytest.raises(UnsupportedModelError, match="it must be"):
        load_model(folder)


def test_a_part_that_is_missing_is_named_whose_code_ever_runs(tmp_path):
    folder = save(tmp_path / "parts", shards=3)
    (folder / "model-00002-of-00003.safetensors").unlink()
    with pytest.raises(UnsupportedModelError, match="lacks model-00002-of-00003"):
        load_model(folder)


# ---- which types there are --------------------------------------------------------------------


def test_types_of_mlx_lm_are_runnable_and_other_words_are_not():
    assert MODEL_REMAPPING
    assert all(map(is_runnable, ["llama", "qwen3", "solar_open", "gemma3_text", *MODEL_REMAPPING]))
    words = ["cache", "base", "../models/qwen3", "no_such", "", 7, None]
    assert not any(map(is_runnable, words))


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ({"draft_vocab_size": 5}, "may be a drafter"),
        ({"eagle_config": 5}, "may be a drafter"),
        ({"medusa_num_heads": 5}, "may be a drafter"),
        ({"model_type": "odd"}, "mlx-lm has no such type"),
    ],
)
def test_a_folder_that_is_no_model_of_mlx_lm_says_so_in_the_list(tmp_path, setting, words):
    path = save(tmp_path / "m")
    save_json(path / "config.json", QWEN3 | setting)
    assert words in describe_model(path, "m", "m").problem
