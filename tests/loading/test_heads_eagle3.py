"""EAGLE-3 heads in each known layout."""

import mlx.core as mx
import pytest

from mlxspec.errors import UnsupportedModelError
from mlxspec.loading import load_head
from tests.support.head_folders import (
    LAYER,
    TOKENS,
    D,
    V,
    draw,
    eagle3,
    maps,
    renamed,
    save_head_folder,
    tiny_target,
)

FLAT = {**LAYER, "architectures": ["LlamaForCausalLM"], "draft_vocab_size": len(TOKENS)}
SPECULATORS = {
    "speculators_model_type": "eagle3",
    "transformer_layer_config": LAYER,
    "draft_vocab_size": len(TOKENS),
    "eagle_aux_hidden_state_layer_ids": [2, 4, 5],
    "speculators_config": {"verifier": {"name_or_path": "org/target"}},
}
IDS = mx.array(TOKENS, mx.int32)


def assert_same(tensors, expected):
    assert tensors.keys() == expected.keys()
    assert all(mx.array_equal(tensors[name], array) for name, array in expected.items())


def load(tmp_path, tensors, config, *, layer="midlayer.", file="model.safetensors", target=None):
    folder = tmp_path / "h"
    save_head_folder(folder, renamed(tensors, ("layer.", layer)), config, file)
    return load_head(folder, target or tiny_target())


@pytest.mark.parametrize("file", ["pytorch_model.bin", "model.safetensors"])
@pytest.mark.parametrize("layer", ["midlayer.", "layers.0.", "model.midlayer."])
def test_heads_with_a_flat_config_are_renamed(tmp_path, file, layer):
    stored = eagle3(dtype=mx.float16)
    head = load(tmp_path, {**stored, **maps()}, FLAT, layer=layer, file=file)
    assert (head.kind, head.unknown) == ("eagle3", ())
    assert_same(head.tensors, {**stored, "target_ids": IDS})
    assert head.tensors["target_ids"].dtype == mx.int32
    assert head.config == {
        **{name: LAYER[name] for name in ("num_attention_heads", "num_key_value_heads")},
        **{name: LAYER[name] for name in ("hidden_size", "intermediate_size", "head_dim")},
        **{name: LAYER[name] for name in ("rms_norm_eps", "rope_theta", "vocab_size")},
        "rope_scaling": None,
        "attention_bias": False,
        "fc_bias": False,
        "target_hidden_size": D,
        "draft_vocab_size": len(TOKENS),
        "capture": [2, 4, 5],
        "norm_before_residual": False,
        "norm_before_fc": False,
        "fc_norm": False,
        "norm_output": False,
    }


def test_a_whole_vocabulary_needs_no_map(tmp_path):
    stored = eagle3(rows=V, embedding=True)
    head = load(tmp_path, stored, {**FLAT, "draft_vocab_size": V})
    assert_same(head.tensors, stored)
    assert head.config["draft_vocab_size"] == V


def test_a_head_without_output_keeps_its_tokens(tmp_path):
    stored = eagle3(rows=0)
    head = load(tmp_path, {**stored, **maps()}, FLAT)
    assert_same(head.tensors, {**stored, "target_ids": IDS})


def test_a_base_of_null_is_llama_s(tmp_path):
    head = load(tmp_path, {**eagle3(), **maps()}, {**FLAT, "rope_theta": None})
    assert head.config["rope_theta"] == 10_000.0


def test_heads_of_speculators_have_their_own_defaults(tmp_path):
    stored = eagle3()
    head = load(tmp_path, {**stored, **maps()}, SPECULATORS, layer="layers.0.")
    assert_same(head.tensors, {**stored, "target_ids": IDS})
    assert head.config["norm_before_residual"] is True
    assert head.config["capture"] == [2, 4, 5]
    assert "capture_alternatives" not in head.config
    assert head.card["target"] == {"name": "org/target"}


def test_speculators_leave_out_what_llama_has_by_default(tmp_path):
    layer = {name: LAYER[name] for name in ("head_dim", "num_key_value_heads")}
    config = {**SPECULATORS, "transformer_layer_config": layer}
    head = load(tmp_path, {**eagle3(), **maps()}, config, layer="layers.0.")
    assert head.config["num_attention_heads"] == LAYER["num_attention_heads"]


@pytest.mark.parametrize("config", [FLAT, SPECULATORS], ids=["flat", "speculators"])
@pytest.mark.parametrize("value", [True, False])
def test_flags_that_a_config_states_count(tmp_path, config, value):
    names = ("norm_before_residual", "norm_output")
    head = load(tmp_path, {**eagle3(), **maps()}, config | dict.fromkeys(names, value))
    assert [head.config[name] for name in names] == [value, value]


@pytest.mark.parametrize("extra", ["input_norm", "fc_norm"])
@pytest.mark.parametrize("stated", [True, False])
def test_norms_before_the_fusion_are_kept(tmp_path, extra, stated):
    stored = eagle3(extra=[extra])
    flag = {"input_norm": "norm_before_fc", "fc_norm": "fc_norm"}[extra]
    head = load(tmp_path, {**stored, **maps()}, {**FLAT, **({flag: True} if stated else {})})
    assert head.config[flag] is True
    assert_same(head.tensors, {**stored, "target_ids": IDS})


def test_a_flag_inside_eagle_config_counts(tmp_path):
    stored = eagle3(extra=["input_norm"])
    config = {**FLAT, "eagle_config": {"norm_before_fc": False}}
    head = load(tmp_path, {**stored, **maps()}, config)
    assert head.config["norm_before_fc"] is False
    assert head.unknown == ("input_norm.weight",)


@pytest.mark.parametrize(
    ("where", "capture", "alternatives"),
    [
        ({"eagle_aux_hidden_state_layer_ids": [1, 3, 6]}, [1, 3, 6], [[2, 4, 7]]),
        (
            {"eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 3, 6]}},
            [2, 4, 7],
            [[1, 3, 6]],
        ),
        ({"eagle_config": {"eagle_aux_hidden_state_layer_ids": [-1, 3, 6]}}, [0, 4, 7], None),
        ({"eagle_aux_hidden_state_layer_ids": [1, 3, 8]}, [1, 3, 8], None),
        ({"eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 3, 8]}}, [1, 3, 8], None),
        ({"eagle_config": {"use_aux_hidden_state": True}}, [2, 4, 5], None),
    ],
)
def test_the_position_of_the_field_decides_the_convention_of_layers(
    tmp_path, where, capture, alternatives
):
    head = load(tmp_path, {**eagle3(), **maps()}, {**FLAT, **where})
    assert head.config["capture"] == capture
    assert head.config.get("capture_alternatives") == alternatives


@pytest.mark.parametrize("ids", [[1, 3, 99], "all", [1, 2.5, 3], [True, 2, 3]])
def test_layers_that_the_target_lacks_are_refused(tmp_path, ids):
    config = {**SPECULATORS, "eagle_aux_hidden_state_layer_ids": ids}
    with pytest.raises(UnsupportedModelError, match="layers"):
        load(tmp_path, {**eagle3(), **maps()}, config)


def test_a_narrower_head_brings_its_own_embedding_and_output(tmp_path):
    target = tiny_target(hidden_size=16, head_dim=4)
    stored = eagle3(width=16, embedding=True)
    head = load(tmp_path, {**stored, **maps()}, {**FLAT, "target_hidden_size": 16}, target=target)
    assert (head.config["hidden_size"], head.config["target_hidden_size"]) == (8, 16)
    assert_same(head.tensors, {**stored, "target_ids": IDS})
    del stored["embed_tokens.weight"]
    with pytest.raises(UnsupportedModelError, match=r"lacks embed_tokens\.weight"):
        load(tmp_path, {**stored, **maps()}, FLAT, target=target)


def test_biases_of_queries_keys_and_values_are_kept(tmp_path):
    shapes = {"q": 24, "k": 12, "v": 12}
    biases = draw({f"layer.self_attn.{n}_proj.bias": (size,) for n, size in shapes.items()})
    stored = {**eagle3(), **biases}
    head = load(tmp_path, {**stored, **maps()}, FLAT)
    assert head.config["attention_bias"] is True
    assert_same(head.tensors, {**stored, "target_ids": IDS})


def test_what_only_training_needs_is_passed_over(tmp_path):
    more = {"verifier_lm_head.weight": mx.ones((6, D)), "layer.self_attn.q_norm.weight": mx.ones(3)}
    head = load(tmp_path, {**eagle3(), **maps(), **more}, FLAT)
    assert head.unknown == ("midlayer.self_attn.q_norm.weight",)


def test_a_map_beyond_the_target_s_vocabulary_is_named(tmp_path):
    offsets = {"d2t": mx.array([0, 0, 0, 0, 0, V - 5])}
    with pytest.raises(UnsupportedModelError, match=f"'d2t' leads to token {V}; .* 0 to {V - 1}"):
        load(tmp_path, {**eagle3(), **offsets}, FLAT)


def test_a_map_of_floats_is_refused(tmp_path):
    with pytest.raises(UnsupportedModelError, match=r"'d2t' is mlx\.core\.float32"):
        load(tmp_path, {**eagle3(), "d2t": mx.zeros(6)}, FLAT)


def test_a_reduced_vocabulary_without_its_map_is_incomplete(tmp_path):
    with pytest.raises(UnsupportedModelError, match="lacks target_ids"):
        load(tmp_path, eagle3(), FLAT)


def test_a_map_of_another_length_than_the_output_is_refused(tmp_path):
    with pytest.raises(UnsupportedModelError, match=r"'d2t' has the shape \(5,\), not \(6,\)"):
        load(tmp_path, {**eagle3(), **maps(TOKENS[:5])}, FLAT)


@pytest.mark.parametrize(
    "name",
    ["fc.weight", "norm.weight", "layer.self_attn.o_proj.weight", "layer.mlp.up_proj.weight"],
)
def test_a_missing_tensor_is_named(tmp_path, name):
    stored = eagle3()
    del stored[name]
    with pytest.raises(UnsupportedModelError, match=name):
        load(tmp_path, {**stored, **maps()}, FLAT)


def test_a_head_of_another_target_is_refused_by_its_tensor(tmp_path):
    with pytest.raises(UnsupportedModelError) as caught:
        load(tmp_path, {**eagle3(), **maps()}, FLAT, target=tiny_target(hidden_size=16))
    assert "not (8, 48)" in str(caught.value) or "lacks embed_tokens" in str(caught.value)


def test_more_layers_than_one_are_refused(tmp_path):
    more = {"layers.1.mlp.up_proj.weight": mx.ones((12, D))}
    with pytest.raises(UnsupportedModelError, match="several layers"):
        load(tmp_path, {**eagle3(), **maps(), **more}, FLAT, layer="layers.0.")
