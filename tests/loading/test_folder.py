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
from tests.support.pairwise import each_value
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


@each_value(
    family=["llama", "qwen2", "mistral"],
    stated=[pytest.param({}, id="missing"), pytest.param({"tie_word_embeddings": None}, id="null")],
)
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
    assert (loaded.name, loaded.revision) == ("own", "")
    assert not loaded.config.tie_word_embeddings
    head = random_weights(config)["lm_head.weight"]
    np.testing.assert_array_equal(loaded.model.lm_head.weight, head)


def test_a_head_that_the_config_promises_is_missed(tmp_path):
    config = tiny_config(tie_word_embeddings=False)
    assert "lacks lm_head.weight" in refusal_of(save_without_head(tmp_path / "none", config))


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


# ---- what does no harm --------------------------------------------------------------------


def edited(name, old, new):
    """Replace a text in a file of a folder, which is written without spaces first."""

    def edit(folder):
        path = folder / name
        text = json.dumps(json.loads(path.read_text()), separators=(",", ":"))
        assert old in text
        path.write_text(text.replace(old, new, 1), encoding="utf-8")

    return edit


def stated(**changes):
    """Change entries of a config."""

    def edit(folder):
        config = json.loads((folder / "config.json").read_text())
        save_json(folder / "config.json", config | changes)

    return edit


def index_of(count):
    """Write an index of parts that may not be there."""
    names = [f"model-{index:05}-of-{count:05}.safetensors" for index in range(1, count + 1)]
    return indexed({f"model.layers.{index}.weight": name for index, name in enumerate(names)})


def indexed(weight_map):
    content = {} if weight_map is None else {"weight_map": weight_map}
    return lambda folder: save_json(folder / "model.safetensors.index.json", content)


def moved(old, new):
    return lambda folder: (folder / old).rename(folder / new)


def removed(name):
    return lambda folder: (folder / name).unlink()


def written(name, text):
    return lambda folder: (folder / name).write_text(text, encoding="utf-8")


def another_model(folder):
    mx.save_safetensors(str(folder / "consolidated.safetensors"), {"norm.weight": mx.zeros(4)})


PART, INDEX = "model-00002-of-00002.safetensors", "model.safetensors.index.json"


@pytest.mark.parametrize(
    ("shards", "changes"),
    [
        (1, [index_of(2), written("model-00001-of-00002.safetensors", "cut short")]),
        (2, [index_of(3)]),
        (2, [removed(INDEX), another_model]),
        (1, [moved("model.safetensors", "weights.00.safetensors")]),
        (1, [edited("config.json", "{", "\ufeff{")]),
        (1, [written("tokenizer_config.json", '{"eos_token":"<|end|>","model_max_length":"a"}')]),
    ],
    ids=["a part", "another index", "other weights", "name", "byte order", "length"],
)
def test_what_another_program_left_behind_does_not_matter(tmp_path, shards, changes):
    folder = save_folder(tmp_path / "m", shards=shards)
    for change in changes:
        change(folder)
    assert load_model(folder).tokenizer.encode("ab")


# ---- broken folders ----------------------------------------------------------------------------

DAMAGED = ["", "[1]", "\0\0", '{"eos_token_id": 2,}']
FOREIGN = {"quant_method": "gptq", "bits": 4}
HUGE = 2**32 - 1
NO_TOKENIZER = "the tokenizer of"


@pytest.mark.parametrize(
    ("shards", "change", "named"),
    [
        (1, removed("config.json"), "has no config.json: it is not a model folder"),
        (1, removed("tokenizer.json"), "has no tokenizer.json"),
        (1, moved("model.safetensors", "pytorch_model.bin"), "holds no *.safetensors"),
        (3, removed("model-00002-of-00003.safetensors"), "lacks model-00002-of-00003"),
        (2, indexed({"model.norm.weight": "../other.safetensors"}), "files of its own folder"),
        (2, indexed(None), "does not list files of its own folder"),
        (2, indexed({"a": []}), "does not list files of its own folder"),
        *((1, written("config.json", content), "config.json") for content in DAMAGED),
        *((1, written("tokenizer.json", content), "tokenizer.json") for content in DAMAGED),
        (1, stated(quantization_config=FOREIGN), "quantised by the method 'gptq'"),
        (1, stated(model_type="gemma3"), "'gemma3'"),
        (1, stated(vocab_size=2**31 - 1), "weights, and its files hold"),
        (1, stated(num_hidden_layers=9000), "weights, and its files hold"),
        (1, edited("tokenizer.json", '"a":0', '"a":[0]'), NO_TOKENIZER),  # a bare Exception
        (1, edited("tokenizer.json", '"single_word":false', '"single_word":[]'), NO_TOKENIZER),
        (1, edited("tokenizer_config.json", "{", '{"added_tokens_decoder":[1],'), NO_TOKENIZER),
        (1, edited("tokenizer.json", '"a":0', f'"a":{HUGE}'), f"of the number {HUGE}"),
        (1, edited("tokenizer.json", '"id":23', f'"id":{HUGE}'), f"of the number {HUGE}"),
    ],
)
def test_a_broken_folder_is_refused_by_what_is_broken(tmp_path, shards, change, named):
    folder = save_folder(tmp_path / "m", shards=shards)
    change(folder)
    assert named in refusal_of(folder)


def test_a_part_that_is_missing_is_named_and_no_name_fills_the_screen(tmp_path):
    folder = save_folder(tmp_path / "m", shards=2)
    (folder / PART).unlink()
    for change, lost in (
        (index_of(3), "model-00001-of-00003"),
        (indexed({"a": "x" * 10_000}), "x"),
    ):
        change(folder)
        message = refusal_of(folder)
        assert f"lacks {lost}" in message
        assert len(message) < 1000


@pytest.mark.parametrize(("shards", "name"), [(1, "model.safetensors"), (2, PART)])
def test_refuses_weights_cut_anywhere(tmp_path, shards, name):
    folder = save_folder(tmp_path / "m", shards=shards)
    content = (folder / name).read_bytes()
    for length in [*range(0, 200, 25), *range(200, len(content), len(content) // 12)]:
        (folder / name).write_bytes(content[:length])
        assert f"{name} is damaged or cut short" in refusal_of(folder)
        assert f"{name} is damaged or cut short" in describe_model(folder, "m", "m").problem


# ---- generation_config.json ----------------------------------------------------------------

QWEN = {
    **{"do_sample": True, "temperature": 0.7, "top_k": 20, "top_p": 0.8},
    **{"repetition_penalty": 1.1, "eos_token_id": [1]},
}


@pytest.mark.parametrize("content", DAMAGED)
def test_a_generation_config_that_cannot_be_read_is_left_out_and_named(tmp_path, content):
    folder, said = save_folder(tmp_path / "m", tiny_config(eos_token_id=3)), []
    (folder / "generation_config.json").write_text(content)
    loaded = load_model(folder, say=said.append)
    assert (loaded.tokenizer.eos_token_ids, loaded.sampling) == ((3, 23), {})
    (line,) = said
    assert line.startswith(WARNING)
    assert "generation_config.json" in line
    assert is_model_folder(folder)


@pytest.mark.parametrize("wrong", ["</s>", [[2]], True, {"a": 1}, 2.0])
def test_end_tokens_of_a_generation_config_that_are_no_ids_are_left_out(tmp_path, wrong):
    config = {"eos_token_id": wrong}
    folder = save_folder(tmp_path / "m", tiny_config(eos_token_id=3), generation_config=config)
    assert load_model(folder).tokenizer.eos_token_ids == (3, 23)


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (QWEN, {"temperature": 0.7, "top_k": 20, "top_p": 0.8, "repetition_penalty": 1.1}),
        ({"do_sample": True, "top_k": 64}, {"temperature": 1.0, "top_k": 64}),
        ({"do_sample": False, "temperature": 0.6}, {"temperature": 0.0}),
        ({"eos_token_id": 2, "bos_token_id": 1}, {}),
        ({"temperature": 0.6, "top_p": 7, "top_k": "many", "min_p": None}, {"temperature": 0.6}),
    ],
)
def test_what_authors_recommend_is_taken_and_nothing_that_cannot_be(tmp_path, config, expected):
    folder = save_folder(tmp_path / "m", generation_config=config)
    assert load_model(folder).sampling == expected
