"""Model folders as Hugging Face and MLX write them, and every way in which one can be damaged."""

import json

import mlx.core as mx
import mlx_lm.utils
import numpy as np
import pytest
from mlx import nn
from mlx.utils import tree_flatten

from mlxspec.errors import WARNING, UnsupportedModelError
from mlxspec.loading import load_model
from mlxspec.loading.fetch.models import describe_model
from mlxspec.loading.folder import is_model_folder
from mlxspec.loading.profile import read_profile
from tests.support.model_folders import (
    random_model,
    random_weights,
    save_folder,
    save_json,
    tiny_config,
)
from tests.support.tiny import text_logits

TOKENS = [1, 5, 3, 20, 0, 7]


def logits_of(model):
    return text_logits(model, TOKENS)


def refusal_of(folder) -> str:
    with pytest.raises(UnsupportedModelError) as caught:
        load_model(folder)
    return str(caught.value)


@pytest.mark.parametrize("family", ["llama", "qwen2", "mistral"])
def test_mlx_lm_reads_the_same_model_from_the_folder(tmp_path, family):
    folder = save_folder(tmp_path / family, tiny_config(family, sliding_window=None))
    theirs, _ = mlx_lm.utils.load_model(folder)
    ours = logits_of(load_model(folder).model)
    np.testing.assert_allclose(ours, theirs(mx.array([TOKENS]))[0], atol=1e-4)


def test_mlx_lm_reads_the_same_model_from_a_quantised_folder(tmp_path):
    settings = {"group_size": 32, "bits": 4, "lm_head": {"group_size": 32, "bits": 8}}
    model = random_model(tiny_config())
    nn.quantize(
        model,
        class_predicate=lambda path, module: (
            hasattr(module, "to_quantized") and settings.get(path, {"group_size": 32, "bits": 4})
        ),
    )
    weights = dict(tree_flatten(model.parameters()))
    folder = save_folder(tmp_path / "q", tiny_config(quantization=settings), weights)
    theirs, _ = mlx_lm.utils.load_model(folder)
    loaded = load_model(folder)
    assert loaded.weights.endswith("4-bit")
    np.testing.assert_allclose(logits_of(loaded.model), theirs(mx.array([TOKENS]))[0], atol=1e-4)


def without(config, *keys):
    return {key: value for key, value in config.items() if key not in keys}


def save_without_head(folder, config):
    weights = {name: mx.array(array) for name, array in random_weights(config).items()}
    weights.pop("lm_head.weight", None)
    return save_folder(folder, config, weights)


@pytest.mark.parametrize("stated", [{}, {"tie_word_embeddings": None}], ids=["missing", "null"])
@pytest.mark.parametrize("family", ["llama", "qwen2", "mistral"])
def test_a_checkpoint_without_a_head_is_tied_unless_its_config_states_otherwise(
    tmp_path, family, stated
):
    config = without(tiny_config(family, sliding_window=None), "tie_word_embeddings")
    folder = save_without_head(tmp_path / family, config)
    theirs, _ = mlx_lm.utils.load_model(folder)  # which takes it for tied, too
    save_json(folder / "config.json", config | stated)
    loaded = load_model(folder)
    assert loaded.config.tie_word_embeddings
    np.testing.assert_allclose(logits_of(loaded.model), theirs(mx.array([TOKENS]))[0], atol=1e-4)
    assert read_profile(folder).config == loaded.config


def test_a_stored_head_is_used_where_the_config_does_not_mention_it(tmp_path):
    config = without(tiny_config(), "tie_word_embeddings")
    loaded = load_model(save_folder(tmp_path / "own", config))
    assert not loaded.config.tie_word_embeddings
    head = random_weights(config)["lm_head.weight"]
    np.testing.assert_array_equal(loaded.model.lm_head.weight, head)


def test_a_head_that_the_config_promises_is_missed(tmp_path):
    config = tiny_config(tie_word_embeddings=False)
    assert "lacks lm_head.weight" in refusal_of(save_without_head(tmp_path / "none", config))


def test_shards_hold_what_one_file_holds(tmp_path):
    whole = load_model(save_folder(tmp_path / "whole")).model
    parts = load_model(save_folder(tmp_path / "parts", shards=3)).model
    assert mx.array_equal(logits_of(whole), logits_of(parts))


def test_the_name_is_the_folder_s(tmp_path):
    loaded = load_model(save_folder(tmp_path / "my-model"))
    assert (loaded.name, loaded.revision) == ("my-model", "")


@pytest.mark.parametrize(
    ("own", "generation", "expected"),
    [(23, [22, 23], (22, 23)), ([21], 20, (20, 21, 23)), (None, None, (23,)), (5, None, (5, 23))],
)
def test_end_tokens_of_all_files_count(tmp_path, own, generation, expected):
    folder = save_folder(
        tmp_path / "m",
        tiny_config(eos_token_id=own),
        generation_config={"eos_token_id": generation},
    )
    assert load_model(folder).tokenizer.eos_token_ids == expected


def test_a_template_of_its_own_file_is_found(tmp_path):
    folder = save_folder(tmp_path / "m")
    (folder / "chat_template.jinja").write_text("{{ messages[0]['content'] }}")
    tokenizer = load_model(folder).tokenizer
    assert tokenizer.render_chat([{"role": "user", "content": "hi"}]) == "hi"


# ---- broken folders ----------------------------------------------------------------------------


def test_a_folder_without_config_is_no_model(tmp_path):
    assert "has no config.json: it is not a model folder" in refusal_of(tmp_path)


def test_names_a_missing_shard(tmp_path):
    folder = save_folder(tmp_path / "m", shards=3)
    (folder / "model-00002-of-00003.safetensors").unlink()
    assert "lacks model-00002-of-00003.safetensors (1 of 3" in refusal_of(folder)


def index_of(folder, count):
    names = [f"model-{index:05}-of-{count:05}.safetensors" for index in range(1, count + 1)]
    weight_map = {f"model.layers.{index}.weight": name for index, name in enumerate(names)}
    save_json(folder / "model.safetensors.index.json", {"weight_map": weight_map})


@pytest.mark.parametrize("left", ["no part", "a part of its own"])
def test_an_index_beside_one_whole_file_is_of_no_account(tmp_path, left):
    folder = save_folder(tmp_path / "m")
    index_of(folder, 2)
    if left == "a part of its own":
        (folder / "model-00001-of-00002.safetensors").write_bytes(b"cut short")
    assert load_model(folder).tokenizer.encode("ab")


def test_an_index_of_other_parts_than_those_that_are_there_is_of_no_account(tmp_path):
    folder = save_folder(tmp_path / "m", shards=2)
    index_of(folder, 3)
    assert load_model(folder).tokenizer.encode("ab")
    (folder / "model-00002-of-00002.safetensors").unlink()  # now they are not complete
    assert "lacks model-00001-of-00003.safetensors" in refusal_of(folder)


def test_without_an_index_the_files_of_a_model_are_read_and_no_others(tmp_path):
    folder = save_folder(tmp_path / "m", shards=2)
    (folder / "model.safetensors.index.json").unlink()
    mx.save_safetensors(str(folder / "consolidated.safetensors"), {"norm.weight": mx.zeros(4)})
    assert load_model(folder).tokenizer.encode("ab")


def test_weights_may_have_a_name_of_their_own(tmp_path):
    folder = save_folder(tmp_path / "m")
    (folder / "model.safetensors").rename(folder / "weights.00.safetensors")
    assert load_model(folder).tokenizer.encode("ab")


def test_names_a_shard_that_is_cut_short(tmp_path):
    folder = save_folder(tmp_path / "m", shards=2)
    shard = folder / "model-00002-of-00002.safetensors"
    shard.write_bytes(shard.read_bytes()[:-100])
    assert "model-00002-of-00002.safetensors is damaged or cut short" in refusal_of(folder)


def test_refuses_weights_cut_at_any_byte(tmp_path):
    folder = save_folder(tmp_path / "m")
    path = folder / "model.safetensors"
    content = path.read_bytes()
    for length in [*range(0, 200, 7), *range(200, len(content), len(content) // 40)]:
        path.write_bytes(content[:length])
        assert "is damaged or cut short" in refusal_of(folder)


def test_an_index_may_not_point_out_of_the_folder(tmp_path):
    folder = save_folder(tmp_path / "m", shards=2)
    index = {"weight_map": {"model.norm.weight": "../other.safetensors"}}
    save_json(folder / "model.safetensors.index.json", index)
    assert "does not list files of its own folder" in refusal_of(folder)


def test_a_shard_with_a_name_too_long_to_exist_is_missing(tmp_path):
    folder = save_folder(tmp_path / "m", shards=2)
    (folder / "model-00002-of-00002.safetensors").unlink()
    save_json(folder / "model.safetensors.index.json", {"weight_map": {"a": "x" * 10_000}})
    message = refusal_of(folder)
    assert "lacks xxx" in message
    assert len(message) < 1000


@pytest.mark.parametrize(
    "index", [{}, {"weight_map": []}, {"weight_map": {"a": 1}}, {"weight_map": {"a": []}}]
)
def test_refuses_an_index_without_files(tmp_path, index):
    folder = save_folder(tmp_path / "m", shards=2)
    save_json(folder / "model.safetensors.index.json", index)
    assert "does not list files of its own folder" in refusal_of(folder)


def test_says_that_other_weight_files_must_be_converted(tmp_path):
    folder = save_folder(tmp_path / "m")
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    assert "holds no *.safetensors" in refusal_of(folder)


DAMAGED = ["", '{"a": ', "[1]", "\0\0", '{"eos_token_id": 2,}', "// none\n{}"]


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json"])
@pytest.mark.parametrize("content", DAMAGED)
def test_names_a_damaged_file(tmp_path, name, content):
    folder = save_folder(tmp_path / "m")
    (folder / name).write_text(content)
    assert name in refusal_of(folder)


@pytest.mark.parametrize("content", DAMAGED)
def test_a_generation_config_that_cannot_be_read_is_left_out_and_named(tmp_path, content):
    folder, said = save_folder(tmp_path / "m", tiny_config(eos_token_id=3)), []
    (folder / "generation_config.json").write_text(content)
    assert load_model(folder, say=said.append).tokenizer.eos_token_ids == (3, 23)
    (line,) = said
    assert line.startswith(WARNING)
    assert "generation_config.json" in line
    assert is_model_folder(folder)


@pytest.mark.parametrize("wrong", ["</s>", [[2]], [None], True, {"a": 1}, 2.0])
def test_end_tokens_of_a_generation_config_that_are_no_ids_are_left_out(tmp_path, wrong):
    stated = {"eos_token_id": wrong}
    folder = save_folder(tmp_path / "m", tiny_config(eos_token_id=3), generation_config=stated)
    assert load_model(folder).tokenizer.eos_token_ids == (3, 23)


def test_files_may_begin_with_a_byte_order_mark(tmp_path):
    folder = save_folder(tmp_path / "m")
    path = folder / "config.json"
    path.write_text("\ufeff" + path.read_text(), encoding="utf-8")
    assert load_model(folder).tokenizer.encode("ab")


def test_says_that_a_tokenizer_is_missing(tmp_path):
    folder = save_folder(tmp_path / "m")
    (folder / "tokenizer.json").unlink()
    assert "has no tokenizer.json" in refusal_of(folder)


def test_names_a_foreign_quantisation(tmp_path):
    settings = {"quant_method": "gptq", "bits": 4}
    folder = save_folder(tmp_path / "m", tiny_config(quantization_config=settings))
    assert "quantised by the method 'gptq'" in refusal_of(folder)


def test_names_a_family_that_cannot_be_run(tmp_path):
    folder = save_folder(tmp_path / "m")
    config = json.loads((folder / "config.json").read_text()) | {"model_type": "gemma3"}
    save_json(folder / "config.json", config)
    assert "'gemma3'" in refusal_of(folder)


def test_a_family_of_the_wrong_type_is_refused_by_its_key(tmp_path):
    folder = save_folder(tmp_path / "m")
    config = json.loads((folder / "config.json").read_text()) | {"model_type": ["llama"]}
    save_json(folder / "config.json", config)
    assert "'model_type' is ['llama']" in refusal_of(folder)
    assert "'model_type' is ['llama']" in describe_model(folder, "m", "m").problem


@pytest.mark.parametrize(
    "changes", [{"vocab_size": 2**31 - 1}, {"hidden_size": 2**20}, {"num_hidden_layers": 9000}]
)
def test_a_config_of_more_weights_than_there_are_bits_is_refused(tmp_path, changes):
    folder = save_folder(tmp_path / "m")
    config = json.loads((folder / "config.json").read_text()) | changes
    save_json(folder / "config.json", config)
    assert "weights, and its files hold" in refusal_of(folder)


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("tokenizer.json", '"a":0', '"a":[0]'),  # tokenizers says so by a bare Exception
        ("tokenizer.json", '"single_word":false', '"single_word":[]'),
        ("tokenizer.json", '"continuing_subword_prefix":null', '"continuing_subword_prefix":"[]"'),
        ("tokenizer_config.json", "{", '{"added_tokens_decoder": [1], '),
    ],
)
def test_wrong_types_in_a_tokenizer_are_refused(tmp_path, name, old, new):
    folder = save_folder(tmp_path / "m")
    text = json.dumps(json.loads((folder / name).read_text()), separators=(",", ":"))
    assert old in text
    (folder / name).write_text(text.replace(old, new, 1))
    assert f"the tokenizer of {folder} cannot be read" in refusal_of(folder)


def test_a_longest_text_that_is_no_number_does_not_matter(tmp_path):
    folder = save_folder(tmp_path / "m")
    save_json(folder / "tokenizer_config.json", {"eos_token": "<|end|>", "model_max_length": "a"})
    assert load_model(folder).tokenizer.encode("ab")


@pytest.mark.parametrize("old", ['"a":0', '"id":23'])
def test_a_token_of_an_absurd_number_is_refused_before_anyone_counts_up_to_it(tmp_path, old):
    folder = save_folder(tmp_path / "m")
    path = folder / "tokenizer.json"
    text = json.dumps(json.loads(path.read_text()), separators=(",", ":"))
    assert old in text
    path.write_text(text.replace(old, f"{old.partition(':')[0]}:{2**32 - 1}", 1))
    assert "a token of the number 4294967295" in refusal_of(folder)
