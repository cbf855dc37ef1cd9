"""Trained drafters on this disk: their targets, and which of several is used."""

import json
import struct

import mlx.core as mx
import numpy as np
import pytest
from mlx.utils import tree_flatten

from mlxspec.errors import UnsupportedModelError
from mlxspec.loading import load_model
from mlxspec.loading.heads.file import drafter_folders, drafters_for, fingerprint, read_drafter_file
from mlxspec.loading.load import load_draft_model_file
from tests.support.drafter_files import medusa_parts, save_drafter
from tests.support.model_folders import (
    random_model,
    random_weights,
    save_folder,
    save_gguf,
    tiny_config,
)

TARGET = "0123456789abcdef"


def name_of(loaded) -> str:
    return fingerprint(loaded.config, loaded.tokenizer)


def save_medusa(path, target=TARGET, **card):
    return save_drafter(path, "medusa", *medusa_parts(), target, **card)


# ---- whose -----------------------------------------------------------------------------------


def with_other_weights(path):
    weights = random_weights(tiny_config(), 7).items()
    return save_folder(path, weights={name: mx.array(array) for name, array in weights})


def of_config(**changes):
    return lambda path: save_folder(path, tiny_config(**changes))


def with_tokenizer(change):
    def save(path):
        file = save_folder(path) / "tokenizer.json"
        content = json.loads(file.read_text())
        change(content)
        file.write_text(json.dumps(content))
        return path

    return save


def rename(content):
    content["model"]["vocab"]["z"] = content["model"]["vocab"].pop("c")


def add(content):
    token = {**content["added_tokens"][0], "id": 24, "content": "[PAD]"}
    content["added_tokens"].append(token)


@pytest.mark.parametrize(
    ("save", "is_same"),
    [
        (lambda path: save_gguf(path.with_suffix(".gguf")), True),
        (with_other_weights, True),
        (with_tokenizer(add), True),  # formats disagree on which added tokens are worth keeping
        (with_tokenizer(rename), False),
        (of_config(intermediate_size=96), False),
        (of_config(num_hidden_layers=1), False),
        (of_config(num_key_value_heads=4), False),
    ],
    ids=["format", "weights", "added", "tokens", "width", "layers", "heads"],
)
def test_the_fingerprint_of_a_target_is_that_of_its_sizes_and_tokens(tmp_path, save, is_same):
    first, second = load_model(save_folder(tmp_path / "a")), load_model(save(tmp_path / "b"))
    assert (name_of(first) == name_of(second)) == is_same


# ---- which -----------------------------------------------------------------------------------


def test_the_drafters_of_a_target_are_found_and_no_other_ones(tmp_path):
    save_medusa(tmp_path / "a.safetensors", target="fedcba9876543210")
    assert drafters_for(TARGET, [tmp_path, tmp_path / "nowhere"]) == {}
    path = save_medusa(tmp_path / "b.safetensors", tokens_seen=5)
    ((kind, found),) = drafters_for(TARGET, [tmp_path]).items()
    assert (kind, found.path, found.card["tokens_seen"]) == ("medusa", path, 5)


def test_of_two_of_a_kind_that_of_the_first_folder_counts(tmp_path):
    own = save_medusa(tmp_path / "own" / "z.safetensors")
    shipped = save_medusa(tmp_path / "shipped" / "a.safetensors")
    folders = [own.parent, shipped.parent]
    assert drafters_for(TARGET, folders)["medusa"].path == own
    assert drafters_for(TARGET, folders[::-1])["medusa"].path == shipped


def test_drafters_trained_here_come_before_those_that_were_shipped(tmp_path, monkeypatch):
    monkeypatch.setenv("MLXSPEC_HOME", str(tmp_path))
    assert drafter_folders()[0] == tmp_path / "drafters"


@pytest.mark.parametrize(
    "content",
    [
        b"",
        struct.pack("<Q", 1 << 60) + b"{}",
        struct.pack("<Q", 4) + b"nope",
        struct.pack("<Q", 24) + b'{"__metadata__":{"a":1}}',
    ],
)
def test_a_file_that_is_no_drafter_is_passed_over(tmp_path, content):
    path = tmp_path / "odd.safetensors"
    path.write_bytes(content)
    assert read_drafter_file(path) is None
    assert drafters_for(TARGET, [tmp_path]) == {}


def test_a_kind_that_is_not_known_is_passed_over(tmp_path):
    path = save_drafter(tmp_path / "odd.safetensors", "oracle", *medusa_parts(), TARGET)
    assert drafters_for(TARGET, [tmp_path]) == {}
    with pytest.raises(UnsupportedModelError, match="'oracle'"):
        read_drafter_file(path)


def test_digests_tell_trainings_apart(tmp_path):
    paths = [
        save_medusa(tmp_path / f"{number}.safetensors", tokens_seen=seen)
        for number, seen in enumerate([5, 5, 6])
    ]
    first, same, other = (read_drafter_file(path).digest for path in paths)
    assert first == same != other


# ---- draft models ----------------------------------------------------------------------------


def save_draft_model(path):
    config = tiny_config("qwen2", tie_word_embeddings=True)
    model = random_model(config)
    tensors = dict(tree_flatten(model.parameters()))
    return save_drafter(path, "draft-model", config, tensors, TARGET), model


@pytest.fixture
def tokenizer(tmp_path):
    return load_model(save_folder(tmp_path / "target")).tokenizer


def test_a_draft_model_has_the_stored_weights_and_the_tokenizer_of_its_target(tmp_path, tokenizer):
    path, model = save_draft_model(tmp_path / "small.safetensors")
    loaded = load_draft_model_file(read_drafter_file(path), tokenizer)
    assert loaded.tokenizer is tokenizer
    assert (loaded.config.model_type, loaded.name) == ("qwen2", "small")
    stored, found = (dict(tree_flatten(one.parameters())) for one in (model, loaded.model))
    assert all(np.array_equal(np.array(found[name]), np.array(stored[name])) for name in stored)


def lacking(path):
    save_draft_model(path)
    tensors, metadata = mx.load(str(path), return_metadata=True)
    del tensors["model.norm.weight"]
    mx.save_safetensors(str(path), tensors, metadata)


def cut(path):
    save_draft_model(path)
    path.write_bytes(path.read_bytes()[:-100])


@pytest.mark.parametrize(
    ("save", "named"),
    [
        (lacking, r"lacks model\.norm\.weight"),
        (cut, "cut short"),
    ],
)
def test_a_file_that_is_no_whole_draft_model_is_refused(tmp_path, tokenizer, save, named):
    save(tmp_path / "small.safetensors")
    with pytest.raises(UnsupportedModelError, match=named):
        load_draft_model_file(read_drafter_file(tmp_path / "small.safetensors"), tokenizer)
