"""Medusa heads in each known layout."""

import zipfile

import mlx.core as mx
import pytest

from mlxspec.errors import UnsupportedModelError
from mlxspec.loading import load_head
from tests.support.head_folders import (
    TOKENS,
    D,
    V,
    authors_medusa,
    draw,
    medusa,
    save_archive,
    save_head_folder,
    save_json,
    save_sharded,
    tiny_target,
    vllm_medusa,
)

AUTHORS = {  # published configs state two heads, whatever the file holds
    "base_model_name_or_path": "lmsys/vicuna-7b-v1.3",
    "medusa_num_heads": 2,
    "medusa_num_layers": 1,
}
VLLM = {"model_type": "medusa", "num_heads": 3, "num_hidden_layers": 1, "vocab_size": V}


def assert_same(tensors, expected):
    assert tensors.keys() == expected.keys()
    assert all(mx.array_equal(tensors[name], array) for name, array in expected.items())


@pytest.mark.parametrize("file", ["medusa_lm_head.pt", "medusa_lm_head.safetensors"])
@pytest.mark.parametrize("num_layers", [1, 2])
def test_heads_of_the_authors_are_counted_from_their_names(tmp_path, file, num_layers):
    stored = medusa(5, num_layers, dtype=mx.float16)
    folder = save_head_folder(tmp_path / "h", authors_medusa(stored, num_layers), {**AUTHORS}, file)
    head = load_head(folder, tiny_target())
    assert (head.kind, head.name, head.unknown) == ("medusa", "h", ())
    assert head.config == {
        "hidden_size": D,
        "vocab_size": V,
        "num_heads": 5,
        "num_layers": num_layers,
    }
    assert head.card["target"] == {"name": "lmsys/vicuna-7b-v1.3"}
    assert_same(head.tensors, stored)


def test_heads_without_outputs_share_the_target_s(tmp_path):
    stored = medusa(2, rows=0)
    config = {**AUTHORS, "version": "2"}
    folder = save_head_folder(
        tmp_path / "h", authors_medusa(stored), config, "medusa_lm_head.safetensors"
    )
    assert_same(load_head(folder, tiny_target()).tensors, stored)


def test_a_single_file_needs_no_config(tmp_path):
    stored = medusa(2)
    save_head_folder(tmp_path, authors_medusa(stored), file="heads.pt")
    head = load_head(tmp_path / "heads.pt", tiny_target())
    assert head.name == "heads"
    assert_same(head.tensors, stored)


@pytest.mark.parametrize("ending", ["bin", "safetensors"])
def test_heads_bundled_with_their_target_say_so(tmp_path, ending):
    stored = medusa(2)
    base = draw({"model.embed_tokens.weight": (V, D), "lm_head.weight": (V, D), "model.n": (D,)})
    bundled = {**base, **authors_medusa(stored, prefix="medusa_head.")}
    config = {"model_type": "llama", "medusa_num_heads": 2, "medusa_num_layers": 1}
    head = load_head(save_sharded(tmp_path / "h", bundled, config, ending), tiny_target())
    assert_same(head.tensors, stored)
    assert head.unknown == ()
    assert "the target must be this very checkpoint" in head.card["note"]


def test_weights_of_the_target_around_bundled_heads_are_not_read(tmp_path):
    """The target's storages are taken out of one shard, and its other shard is missing."""
    stored, shard = medusa(2), "pytorch_model-00001-of-00002.bin"
    bundled = {"model.n": mx.ones(D), **authors_medusa(stored, prefix="medusa_head.")}
    save_head_folder(tmp_path, bundled, {"model_type": "llama"}, shard)
    with zipfile.ZipFile(tmp_path / shard) as archive:
        records = {name.partition("/")[2]: archive.read(name) for name in archive.namelist()}
    del records["data/0"]
    save_archive(tmp_path / shard, records)
    weight_map = {**dict.fromkeys(bundled, shard), "lm_head.weight": "missing.bin"}
    save_json(tmp_path / "pytorch_model.bin.index.json", {"weight_map": weight_map})
    assert_same(load_head(tmp_path, tiny_target()).tensors, stored)


@pytest.mark.parametrize("prefix", ["", "medusa_heads."])
def test_heads_of_vllm_are_renamed(tmp_path, prefix):
    stored = medusa(3, 2)
    folder = save_head_folder(tmp_path / "h", vllm_medusa(stored, prefix), VLLM)
    head = load_head(folder, tiny_target())
    assert_same(head.tensors, stored)
    assert "note" not in head.card


@pytest.mark.parametrize("name", ["lm_head.weight", "lm_heads.0.weight"])
def test_one_output_of_vllm_serves_all_heads(tmp_path, name):
    stored, output = medusa(3, rows=0), draw({"out": (V, D)})["out"]
    folder = save_head_folder(
        tmp_path / "h", {**vllm_medusa(stored), name: output}, {**VLLM, "original_lm_head": True}
    )
    expected = {**stored, **{f"heads.{head}.out.weight": output for head in range(3)}}
    assert_same(load_head(folder, tiny_target()).tensors, expected)


@pytest.mark.parametrize("rows", [len(TOKENS), V])
def test_outputs_keep_the_rows_of_a_reduced_vocabulary(tmp_path, rows):
    stored, ids = medusa(2, rows=rows), mx.array(TOKENS, mx.int64)
    folder = save_head_folder(
        tmp_path / "h",
        {**vllm_medusa(stored), "token_map": ids},
        {**VLLM, "truncated_vocab_size": len(TOKENS)},
    )
    head = load_head(folder, tiny_target())
    assert head.tensors["token_map"].dtype == mx.int32
    assert head.tensors["token_map"].tolist() == list(TOKENS)
    for index in range(2):
        output = stored[f"heads.{index}.out.weight"]
        expected = output if rows < V else mx.stack([output[token] for token in TOKENS])
        assert mx.array_equal(head.tensors[f"heads.{index}.out.weight"], expected)


def test_a_token_map_of_a_whole_vocabulary_is_set_aside(tmp_path):
    folder = save_head_folder(
        tmp_path / "h",
        {**vllm_medusa(medusa(2)), "token_map": mx.array(TOKENS)},
        {**VLLM, "truncated_vocab_size": V},
    )
    head = load_head(folder, tiny_target())
    assert head.unknown == ("token_map",)
    assert head.tensors["heads.0.out.weight"].shape == (V, D)


def test_a_token_that_the_target_lacks_is_named(tmp_path):
    folder = save_head_folder(
        tmp_path / "h",
        {**vllm_medusa(medusa(1)), "token_map": mx.array([1, V])},
        {**VLLM, "truncated_vocab_size": 2},
    )
    with pytest.raises(UnsupportedModelError, match=f"'token_map' leads to token {V}"):
        load_head(folder, tiny_target())


def test_a_gap_in_the_heads_is_named(tmp_path):
    stored = {name: array for name, array in medusa(3).items() if "heads.1" not in name}
    folder = save_head_folder(tmp_path / "h", authors_medusa(stored), AUTHORS)
    with pytest.raises(UnsupportedModelError, match="a Medusa head 2, but no Medusa head 1"):
        load_head(folder, tiny_target())


def test_a_missing_output_is_named(tmp_path):
    stored = medusa(3)
    del stored["heads.2.out.weight"]
    folder = save_head_folder(tmp_path / "h", authors_medusa(stored), AUTHORS)
    with pytest.raises(UnsupportedModelError, match=r"lacks heads\.2\.out\.weight"):
        load_head(folder, tiny_target())


def test_heads_of_another_target_are_refused_by_the_tensor_that_does_not_fit(tmp_path):
    folder = save_head_folder(tmp_path / "h", authors_medusa(medusa(2)), AUTHORS)
    with pytest.raises(UnsupportedModelError) as caught:
        load_head(folder, tiny_target(hidden_size=16))
    assert "'0.0.linear.weight' has the shape (8, 8), not (16, 16)" in str(caught.value)
    with pytest.raises(UnsupportedModelError) as caught:
        load_head(folder, tiny_target(vocab_size=21))
    assert "'0.1.weight' has the shape (20, 8), not (21, 8)" in str(caught.value)
