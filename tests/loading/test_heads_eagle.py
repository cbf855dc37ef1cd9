"""EAGLE-1 and EAGLE-2 heads in each known layout."""

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
    eagle,
    renamed,
    save_head_folder,
    tiny_target,
)

FLAT = {**LAYER, "model_type": "llama", "num_hidden_layers": 1}


def assert_same(tensors, expected):
    assert tensors.keys() == expected.keys()
    assert all(mx.array_equal(tensors[name], array) for name, array in expected.items())


@pytest.mark.parametrize("file", ["pytorch_model.bin", "model.safetensors"])
@pytest.mark.parametrize("options", [{}, {"fc_bias": True}, {"fc_bias": True, "qkv_bias": True}])
def test_heads_of_the_authors_have_the_biases_that_are_there(tmp_path, file, options):
    stored = eagle(**options, dtype=mx.float16)
    head = load_head(save_head_folder(tmp_path / "h", stored, FLAT, file), tiny_target())
    assert (head.kind, head.unknown) == ("eagle", ())
    assert_same(head.tensors, stored)
    assert head.config["fc_bias"] == options.get("fc_bias", False)
    assert head.config["attention_bias"] == options.get("qkv_bias", False)


def test_numbers_come_from_the_checkpoint(tmp_path):
    scaling = {"rope_type": "linear", "factor": 4.0}
    config = {**FLAT, "rope_scaling": scaling, "intermediate_size": 999}
    head = load_head(save_head_folder(tmp_path / "h", eagle(), config), tiny_target())
    assert head.config == {
        **{name: FLAT[name] for name in ("hidden_size", "num_attention_heads", "head_dim")},
        **{name: FLAT[name] for name in ("num_key_value_heads", "rms_norm_eps", "rope_theta")},
        "intermediate_size": 10,
        "rope_scaling": scaling,
        "num_layers": 1,
        "input_norm": False,
        "attention_bias": False,
        "fc_bias": False,
        "vocab_size": V,
        "draft_vocab_size": V,
    }


def test_what_a_config_does_not_say_is_read_from_shapes_or_is_llama_s(tmp_path):
    config = {"num_attention_heads": 4, "num_key_value_heads": 2, "rope_theta": None}
    head = load_head(save_head_folder(tmp_path / "h", eagle(), config), tiny_target())
    assert (head.config["head_dim"], head.config["rope_theta"]) == (6, 10_000.0)
    assert (head.config["rms_norm_eps"], head.config["rope_scaling"]) == (1e-6, None)


def test_two_layers_are_counted_from_their_names(tmp_path):
    first, second = eagle(), draw({name: a.shape for name, a in eagle().items()})
    more = {
        name.replace("layers.0", "layers.1"): array
        for name, array in second.items()
        if name.startswith("layers.0")
    }
    more["layers.1.input_layernorm.weight"] = mx.ones(D)
    stored = {**first, **more}
    head = load_head(save_head_folder(tmp_path / "h", stored, FLAT), tiny_target())
    assert head.config["num_layers"] == 2
    assert_same(head.tensors, stored)


@pytest.mark.parametrize(
    "replacements",
    [
        [("layers.", "model.layers."), ("embed", "model.embed")],
        [("layers.", "model.model.layers."), ("lm_head", "model.lm_head")],
    ],
)
def test_copies_of_vllm_hold_their_config_inside(tmp_path, replacements):
    stored = eagle(fc_bias=True, rows=V)
    config = {"model_type": "eagle", "model": FLAT, "eagle_fc_bias": True}
    folder = save_head_folder(
        tmp_path / "h", renamed(stored, *replacements), {**config, "truncated_vocab_size": V}
    )
    head = load_head(folder, tiny_target())
    assert (head.kind, head.unknown) == ("eagle", ())
    assert head.config["rope_theta"] == LAYER["rope_theta"]
    assert_same(head.tensors, stored)


@pytest.mark.parametrize("rows", [len(TOKENS), V])
def test_copies_of_vllm_may_have_a_reduced_vocabulary(tmp_path, rows):
    stored = eagle(rows=rows)
    folder = save_head_folder(
        tmp_path / "h",
        {**stored, "token_map": mx.array(TOKENS, mx.int64)},
        {"model_type": "eagle", "model": FLAT, "truncated_vocab_size": len(TOKENS)},
    )
    head = load_head(folder, tiny_target())
    assert head.tensors["target_ids"].tolist() == list(TOKENS)
    assert head.config["draft_vocab_size"] == len(TOKENS)
    output = stored["lm_head.weight"]
    expected = output if rows < V else mx.stack([output[token] for token in TOKENS])
    assert mx.array_equal(head.tensors["lm_head.weight"], expected)


@pytest.mark.parametrize("norms", [False, True])
def test_heads_of_speculators_are_renamed(tmp_path, norms):
    stored = eagle(fc_bias=True, norms=norms, rows=V)
    config = {
        "speculators_model_type": "eagle",
        "layernorms": norms,
        "fusion_bias": True,
        "speculators_config": {"verifier": {"name_or_path": "org/target"}},
        "transformer_layer_config": FLAT,
    }
    names = [("fc.", "fusion_fc."), ("layers.0.", "transformer.")]
    folder = save_head_folder(tmp_path / "h", renamed(stored, *names), config)
    head = load_head(folder, tiny_target())
    assert (head.kind, head.config["input_norm"]) == ("eagle", norms)
    assert head.card["target"] == {"name": "org/target"}
    assert_same(head.tensors, stored)


def test_norms_under_their_research_names_are_renamed(tmp_path):
    stored = eagle(norms=True)
    names = [
        ("embedding_layernorm", "embed_layernorm"),
        ("pre_lm_head_layernorm", "lm_head_layernorm"),
        ("layers.0.input_layernorm", "hidden_layernorm"),
    ]
    folder = save_head_folder(tmp_path / "h", renamed(stored, *names), FLAT)
    assert_same(load_head(folder, tiny_target()).tensors, stored)


def test_what_does_nothing_is_reported_or_passed_over(tmp_path):
    stored = eagle()
    more = {
        "layers.0.input_layernorm.weight": mx.ones(D),
        "layers.0.self_attn.rotary_emb.inv_freq": mx.ones(2),
        "surprise.weight": mx.ones(2),
    }
    head = load_head(save_head_folder(tmp_path / "h", {**stored, **more}, FLAT), tiny_target())
    assert_same(head.tensors, stored)
    assert set(head.unknown) == {"layers.0.input_layernorm.weight", "surprise.weight"}


@pytest.mark.parametrize(
    "name", ["layers.0.mlp.up_proj.weight", "layers.0.post_attention_layernorm.weight"]
)
def test_a_missing_tensor_is_named(tmp_path, name):
    stored = eagle()
    del stored[name]
    folder = save_head_folder(tmp_path / "h", stored, FLAT)
    with pytest.raises(UnsupportedModelError, match=f"lacks {name}: the eagle head is incomplete"):
        load_head(folder, tiny_target())


def test_a_bias_of_queries_alone_is_incomplete(tmp_path):
    stored = eagle(qkv_bias=True)
    del stored["layers.0.self_attn.k_proj.bias"]
    with pytest.raises(UnsupportedModelError, match=r"lacks layers\.0\.self_attn\.k_proj\.bias"):
        load_head(save_head_folder(tmp_path / "h", stored, FLAT), tiny_target())


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"hidden_size": 16}, "'model.fc.weight' has the shape (8, 16), not (16, 32)"),
        ({"vocab_size": 30}, "'model.embed_tokens.weight' has the shape (20, 8), not (30, 8)"),
    ],
)
def test_a_head_of_another_target_is_refused_by_its_tensor(tmp_path, changes, expected):
    folder = save_head_folder(tmp_path / "h", renamed(eagle(), prefix="model."), FLAT)
    with pytest.raises(UnsupportedModelError) as caught:
        load_head(folder, tiny_target(**changes))
    assert expected in str(caught.value)


def test_a_config_that_contradicts_the_shapes_is_refused_by_the_tensor(tmp_path):
    folder = save_head_folder(tmp_path / "h", eagle(), {**FLAT, "num_key_value_heads": 4})
    with pytest.raises(UnsupportedModelError) as caught:
        load_head(folder, tiny_target())
    assert "k_proj.weight' has the shape (12, 8), not (24, 8)" in str(caught.value)


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({**FLAT, "num_attention_heads": "4"}, "num_attention_heads"),
        ({**FLAT, "rope_scaling": {"rope_type": "magic"}}, "'magic'"),
        ({**FLAT, "hidden_act": "gelu"}, "hidden_act"),
        ({"model": [1]}, "'model'"),
        ({**FLAT, "max_position_embeddings": 0}, "max_position_embeddings"),
        ({}, "num_attention_heads"),
    ],
)
def test_a_config_that_cannot_be_used_is_refused_by_its_key(tmp_path, config, expected):
    folder = save_head_folder(tmp_path / "h", eagle(), config)
    with pytest.raises(UnsupportedModelError) as caught:
        load_head(folder, tiny_target())
    assert expected in str(caught.value)
