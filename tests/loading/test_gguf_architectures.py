"""GGUF files of other architectures give mlx-lm's models the logits of the models they hold."""

import gguf
import mlx.core as mx
import numpy as np
import pytest
from gguf import GGMLQuantizationType
from gguf.quants import dequantize, quantize
from mlx.utils import tree_flatten

from mlxspec.errors import UnsupportedModelError
from mlxspec.loading.gguf import file
from mlxspec.loading.gguf.architectures import ARCHITECTURES
from mlxspec.loading.gguf.file import read_gguf
from mlxspec.loading.mlx_lm import build_module
from tests.support.gguf_models import BASE, build, random_model, write

TOKENS = mx.array([[1, 5, 3, 20, 0, 7, 7, 2, 11, 4]])
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
EXPERT_KEYS = {"expert_count": 4, "expert_used_count": 2, "expert_feed_forward_length": 16}
HALF = {"rope_dimension_count": 4}
LONG, SHORT = [1.0, 1.5, 2.0, 4.0], [1.0, 1.0, 1.25, 1.5]

# model_type: what its config has beside BASE, and the writer's calls that state it
MODELS = {
    "llama": ({}, {}),
    "qwen3": ({"head_dim": 16}, {}),
    "qwen2_moe": (
        {**EXPERTS, "shared_expert_intermediate_size": 24},
        {**EXPERT_KEYS, "expert_shared_feed_forward_length": 24},
    ),
    "qwen3_moe": (
        {**EXPERTS, "decoder_sparse_step": 1, "mlp_only_layers": [], "norm_topk_prob": True},
        EXPERT_KEYS,
    ),
    "gemma2": (
        {
            "attn_logit_softcapping": 3.0,
            "final_logit_softcapping": 5.0,
            "query_pre_attn_scalar": 16.0,
            "head_dim": 16,
            "tie_word_embeddings": True,
        },
        {"attn_logit_softcapping": 3.0, "final_logit_softcapping": 5.0, "sliding_window": 4},
    ),
    "gemma3_text": (
        {
            "num_hidden_layers": 4,
            "sliding_window": 4,
            "sliding_window_pattern": 3,
            "rope_local_base_freq": 100.0,
            "query_pre_attn_scalar": 8.0,
            "rope_scaling": {"rope_type": "linear", "factor": 8.0},
            "tie_word_embeddings": True,
        },
        {
            "sliding_window": 4,
            "sliding_window_pattern": [True, True, False, True],
            "rope_freq_base_swa": 100.0,
            "rope_scaling_type": gguf.RopeScalingType.LINEAR,
            "rope_scaling_factor": 8.0,
        },
    ),
    "phi3": ({"partial_rotary_factor": 0.5, "tie_word_embeddings": True}, HALF),
    "granite": (
        {
            **{"attention_multiplier": 0.5, "embedding_multiplier": 3.0},
            **{"residual_multiplier": 0.7, "logits_scaling": 2.0},
        },
        {
            **{"attention_scale": 0.5, "embedding_scale": 3.0},
            **{"residual_scale": 0.7, "logit_scale": 2.0},
        },
    ),
    "olmo2": ({}, {}),
    "smollm3": ({"num_hidden_layers": 5}, {}),
    "starcoder2": ({"norm_epsilon": 0.2}, {"layer_norm_eps": 0.2}),
    "exaone4": (
        {"sliding_window": 4, "sliding_window_pattern": "LG"},
        {"sliding_window": 4, "sliding_window_pattern": [True, False]},
    ),
    "gpt_oss": (
        {
            "num_local_experts": 4,
            "num_experts_per_tok": 2,
            "intermediate_size": 32,
            "sliding_window": 4,
            "rope_scaling": {
                "rope_type": "yarn",
                "factor": 4.0,
                "original_max_position_embeddings": 4096,
                "beta_fast": 4.0,
                "beta_slow": 2.0,
            },
        },
        {
            "expert_count": 4,
            "expert_used_count": 2,
            "expert_feed_forward_length": 32,
            "sliding_window": 4,
            "rope_scaling_type": gguf.RopeScalingType.YARN,
            "rope_scaling_factor": 4.0,
            "rope_scaling_orig_ctx_len": 4096,
            "rope_scaling_yarn_beta_fast": 4.0,
            "rope_scaling_yarn_beta_slow": 2.0,
        },
    ),
    "glm4": ({"partial_rotary_factor": 0.5, "attention_bias": True}, HALF),
}


def rebuilt(checkpoint):
    """mlx-lm's model of a checkpoint; its names and shapes have to be the model's."""
    model = build(checkpoint.config)
    tensors = checkpoint.tensors
    if hasattr(model, "sanitize"):
        tensors = model.sanitize(dict(tensors))
    model.load_weights(list(tensors.items()), strict=True)
    return model


@pytest.mark.parametrize("model_type", MODELS)
def test_the_model_of_a_file_has_the_logits_of_the_model_it_was_written_from(tmp_path, model_type):
    changes, settings = MODELS[model_type]
    config = {**BASE, "model_type": model_type, **changes}
    original = random_model(config)
    checkpoint = read_gguf(write(tmp_path / "m.gguf", config, original, settings))
    assert checkpoint.config["model_type"] == model_type
    found, expected = rebuilt(checkpoint)(TOKENS), original(TOKENS)
    np.testing.assert_allclose(np.array(found), np.array(expected), rtol=1e-4, atol=1e-4)


def test_every_architecture_is_compared():
    compared = {*MODELS, "qwen2"}  # test_gguf.py compares qwen2
    assert {architecture.model_type for architecture in ARCHITECTURES.values()} == compared


def test_experts_of_gpt_oss_in_mxfp4_give_the_logits_of_their_numbers(tmp_path):
    changes, settings = MODELS["gpt_oss"]
    config = {**BASE, "model_type": "gpt_oss", **changes}
    original, packed = random_model(config), {}
    for name, array in tree_flatten(original.parameters()):
        if "experts" in name and name.endswith("weight"):
            raw = quantize(np.array(array), GGMLQuantizationType.MXFP4)
            packed[name] = raw, GGMLQuantizationType.MXFP4
            numbers = dequantize(raw, GGMLQuantizationType.MXFP4)
            original.load_weights([(name, mx.array(numbers))], strict=False)
    assert len(packed) == 6
    path = write(tmp_path / "m.gguf", config, original, settings, packed=packed)
    assert mx.allclose(rebuilt(read_gguf(path))(TOKENS), original(TOKENS), atol=1e-4)


def test_long_rotary_factors_of_phi_3_are_read(tmp_path):
    scaling = {"type": "longrope", "long_factor": LONG, "short_factor": SHORT}
    changes = {"rope_scaling": scaling, "original_max_position_embeddings": 32}
    config = {**BASE, "model_type": "phi3", **changes}
    original = random_model(config)
    factors = {"rope_factors_long.weight": LONG, "rope_factors_short.weight": SHORT}
    settings = {"rope_scaling_orig_ctx_len": 32}
    path = write(tmp_path / "m.gguf", config, original, settings, factors=factors)
    found = read_gguf(path)
    assert {key: found.config[key] for key in changes} == changes
    assert mx.allclose(rebuilt(found)(TOKENS), original(TOKENS), atol=1e-4)


def test_a_gate_of_the_shared_expert_may_be_a_vector(tmp_path):
    changes, settings = MODELS["qwen2_moe"]
    config = {**BASE, "model_type": "qwen2_moe", **changes}
    original = random_model(config)
    name = "model.layers.0.mlp.shared_expert_gate.weight"
    vector = np.array(original.layers[0].mlp.shared_expert_gate.weight)[0]
    packed = {name: (vector, GGMLQuantizationType.F32)}
    path = write(tmp_path / "m.gguf", config, original, settings, packed=packed)
    assert mx.array_equal(rebuilt(read_gguf(path))(TOKENS), original(TOKENS))


@pytest.mark.parametrize(
    ("model_type", "settings", "part"),
    [
        ("olmo2", {"sliding_window": 8}, "'attention.sliding_window' is 8; it must be no"),
        ("exaone4", {"sliding_window_pattern": [True, True]}, "a list with true and false"),
        ("gemma3_text", {"sliding_window_pattern": [False, True, True, True]}, "a period"),
        ("gemma3_text", {"sliding_window": 0}, "'attention.sliding_window' is 0"),
        ("glm4", {"rope_dimension_sections": [1, 1, 2, 0]}, "a model of text alone"),
        ("glm4", {"rope_dimension_count": 3}, "does not rotate heads whole (3 of 8 numbers)"),
        ("qwen3", {"expert_count": 5}, "a mixture of experts of the architecture qwen3"),
        ("gpt_oss", {"block_count": 2**30}, "states 1073741824 layers"),
        ("phi3", {"rope_scaling_type": gguf.RopeScalingType.YARN}, "scaling.type' is 'yarn'"),
    ],
)
def test_refuses_what_mlx_lm_would_compute_wrongly(tmp_path, model_type, settings, part):
    changes, sound = MODELS[model_type]
    config = {**BASE, "model_type": model_type, **changes}
    path = write(tmp_path / "m.gguf", config, random_model(config), {**sound, **settings})
    with pytest.raises(UnsupportedModelError) as caught:
        read_gguf(path)
    assert part in str(caught.value)


@pytest.mark.parametrize(
    ("model_type", "settings"),
    [("qwen3_moe", {"expert_count": 5}), ("phi3", {"feed_forward_length": 63})],
)
def test_numbers_that_contradict_the_tensors_build_no_model(tmp_path, model_type, settings):
    changes, sound = MODELS[model_type]
    config = {**BASE, "model_type": model_type, **changes}
    path = write(tmp_path / "m.gguf", config, random_model(config), {**sound, **settings})
    with pytest.raises(UnsupportedModelError, match="mlx-lm cannot load it"):
        build_module(read_gguf(path))


def test_nothing_is_decoded_of_a_file_that_is_refused(tmp_path, monkeypatch):
    config = {**BASE, "model_type": "qwen3"}
    extra = {"blk.0.ffn_gate_inp.weight": [1.0]}
    path = write(tmp_path / "m.gguf", config, random_model(config), {}, factors=extra)
    read = []
    monkeypatch.setattr(file, "read_tensors", lambda infos: read.extend(infos) or {})
    with pytest.raises(UnsupportedModelError, match="holds the tensor blk"):
        read_gguf(path)
    assert read == []
