"""Configs as published, with keys missing or null, and refused by name."""

import math

import pytest

from mlxspec.errors import UnsupportedModelError
from mlxspec.models import ModelConfig

LLAMA = {
    "model_type": "llama",
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
}
MISTRAL = {**LLAMA, "model_type": "mistral", "num_key_value_heads": 2}
QWEN2 = {**LLAMA, "model_type": "qwen2", "num_key_value_heads": 2}


def read(base, **changes):
    return ModelConfig.from_dict({**base, **changes})


NO_BIAS = (False, False, False)


@pytest.mark.parametrize(
    ("family", "changes", "heads", "context", "windows", "biases"),
    [
        ("llama", {}, 4, 2048, (None,) * 3, NO_BIAS),
        ("mistral", {"num_attention_heads": 16}, 8, 131072, (4096,) * 3, NO_BIAS),
        ("qwen2", {"num_attention_heads": 64, "hidden_size": 128}, 32, 32768, (None,) * 3, None),
        ("llama", {"attention_bias": True}, 4, 2048, (None,) * 3, (True, True, False)),
    ],
)
def test_missing_keys_take_the_defaults_of_hugging_face(
    family, changes, heads, context, windows, biases
):
    config = read(LLAMA, model_type=family, **changes)
    assert (config.num_key_value_heads, config.max_position_embeddings) == (heads, context)
    assert config.layer_windows == windows
    found = (config.attention_bias, config.output_bias, config.mlp_bias)
    assert found == (biases or (True, False, False))
    assert (config.rms_norm_eps, config.rope_theta, config.rope_scaling) == (1e-6, 1e4, None)
    assert not config.tie_word_embeddings


@pytest.mark.parametrize("base", [LLAMA, MISTRAL, QWEN2])
def test_null_key_value_heads_mean_one_per_query_head(base):
    assert read(base, num_key_value_heads=None).num_key_value_heads == 4


@pytest.mark.parametrize("key", ["head_dim", "rope_scaling", "rope_theta", "rms_norm_eps"])
def test_null_means_the_default(key):
    assert read(LLAMA, **{key: None}) == read(LLAMA)


def test_an_explicit_head_dim_lifts_the_divisibility_of_the_hidden_size():
    assert read(LLAMA, hidden_size=30, head_dim=16).head_dim == 16


@pytest.mark.parametrize(
    ("value", "tokens"),
    [(2, (2,)), ([151645, 151643], (151645, 151643)), ([7, 7], (7,)), (None, ()), ([], ())],
)
def test_end_tokens_may_be_one_or_several_or_none(value, tokens):
    assert read(LLAMA, eos_token_id=value).eos_token_ids == tokens


MIXED = {"layer_types": ["sliding_attention", "full_attention", "sliding_attention"]}
UPPER = {"sliding_window": 5, "use_sliding_window": True}
WINDOWS = [
    (LLAMA, {"sliding_window": 5}, (None, None, None)),
    (MISTRAL, {"sliding_window": 5}, (5, 5, 5)),
    (MISTRAL, {"sliding_window": None}, (None, None, None)),
    (MISTRAL, {"sliding_window": 5, **MIXED}, (5, None, 5)),
    (QWEN2, {"sliding_window": 5}, (None, None, None)),
    (QWEN2, UPPER, (None, None, None)),
    (QWEN2, {**UPPER, "max_window_layers": 1}, (None, 5, 5)),
    (QWEN2, {"use_sliding_window": True, "max_window_layers": 2}, (None, None, 4096)),
    (QWEN2, {**UPPER, "sliding_window": None, "max_window_layers": 0}, (None, None, None)),
    (QWEN2, {**UPPER, "max_window_layers": 3, **MIXED}, (5, None, 5)),
]


@pytest.mark.parametrize(("base", "changes", "windows"), WINDOWS)
def test_windows_are_settled_per_layer(base, changes, windows):
    assert read(base, **changes).layer_windows == windows


@pytest.mark.parametrize("section", ["rope_scaling", "rope_parameters"])
@pytest.mark.parametrize("key", ["type", "rope_type"])
def test_rope_settings_may_be_spelled_in_either_way(section, key):
    config = read(LLAMA, **{section: {key: "linear", "factor": 4, "rope_theta": 500}})
    assert config.rope_scaling == {"rope_type": "linear", "factor": 4.0}
    assert config.rope_theta == 500.0


LLAMA3 = {"rope_type": "llama3", "factor": 8, "low_freq_factor": 1, "high_freq_factor": 4}
REFUSED = [
    ({"model_type": "phi3"}, r"'phi3' is not supported; supported are llama, mistral, qwen2"),
    ({"model_type": None}, "no 'model_type'"),
    ({"model_type": 3}, "'model_type' is 3; it must be a string"),
    ({"hidden_act": "gelu"}, "'hidden_act' is 'gelu'; it must be 'silu'"),
    ({"hidden_size": None}, "no 'hidden_size'"),
    ({"vocab_size": 2**31}, "'vocab_size' is 2147483648; it must be a whole number from 1 to"),
    ({"num_hidden_layers": 10**10}, "'num_hidden_layers' is 10000000000; .* from 1 to 16384"),
    ({"num_attention_heads": 2**20, "head_dim": 2**20}, r"times head_dim \(1048576\) must be"),
    ({"rms_norm_eps": 10**400}, "'rms_norm_eps' is 1000000.*; it must be a finite number"),
    ({"hidden_act": "x" * 10**6}, "'hidden_act' is 'x{50,250}; it must be 'silu'"),
    ({"intermediate_size": 48.0}, "'intermediate_size' is 48.0"),
    ({"num_hidden_layers": True}, "'num_hidden_layers' is True"),
    ({"num_attention_heads": 5}, r"'num_attention_heads' is 5; .* divisor of hidden_size \(32\)"),
    ({"num_key_value_heads": 3}, r"num_key_value_heads \(3\) must divide .* \(4\)"),
    ({"head_dim": 7}, r"head_dim \(7\) must be even"),
    ({"rms_norm_eps": math.nan}, "'rms_norm_eps' is nan; it must be a finite number"),
    ({"rms_norm_eps": -1e-5}, "'rms_norm_eps' is -1e-05; .* greater than 0"),
    ({"rope_theta": 1}, "'rope_theta' is 1; it must be a finite number greater than 1"),
    ({"tie_word_embeddings": "yes"}, "'tie_word_embeddings' is 'yes'; it must be true or false"),
    ({"eos_token_id": "</s>"}, "'eos_token_id' is '</s>'; it must be a token id"),
    ({"eos_token_id": [True]}, r"'eos_token_id' is \[True\]"),
    ({"rope_scaling": [4]}, r"'rope_scaling' is \[4\]; it must be a JSON object"),
    (
        {"rope_scaling": {"type": "dynamic", "factor": 2}},
        "rope type 'dynamic' is not supported; supported are default, linear, llama3, yarn",
    ),
    ({"rope_scaling": {"type": "linear"}}, "rope_scaling has no 'factor'"),
    ({"rope_scaling": {"rope_type": "llama3", "factor": 8}}, "has no 'low_freq_factor'"),
    ({"rope_scaling": {**LLAMA3, "high_freq_factor": 1}}, "'high_freq_factor' is 1; .* than 1"),
    ({"rope_parameters": {"rope_theta": 0}}, "rope_parameters: 'rope_theta' is 0"),
    ({"partial_rotary_factor": 0.5}, "whole heads are rotated"),
    ({"rope_parameters": {"full_attention": {"rope_theta": 1e4}}}, "share one rotary embedding"),
    (
        {"sliding_window": 4, "layer_types": ["sliding_attention"] * 3},
        "'full_attention' in every layer",
    ),
]


@pytest.mark.parametrize(("changes", "message"), REFUSED)
def test_refuses_a_bad_value_by_name(changes, message):
    with pytest.raises(UnsupportedModelError, match=message):
        read(LLAMA, **changes)


REFUSED_WINDOWS = [
    (MISTRAL, {"sliding_window": 0}, "'sliding_window' is 0"),
    (MISTRAL, {"layer_types": ["full_attention"]}, "'layer_types' is .* a list of 3 strings"),
    (MISTRAL, {"layer_types": ["chunked_attention"] * 3}, "'layer_types' is .*'full_attention'"),
    (QWEN2, {"layer_types": ["sliding_attention"] * 3}, "where layer_types has"),
    (QWEN2, {"layer_types": [["full_attention"]] * 3}, "'layer_types' is"),
    (QWEN2, {"use_sliding_window": True, "max_window_layers": -1}, "'max_window_layers' is -1"),
]


@pytest.mark.parametrize(("base", "changes", "message"), REFUSED_WINDOWS)
def test_refuses_impossible_windows(base, changes, message):
    with pytest.raises(UnsupportedModelError, match=message):
        read(base, **changes)
