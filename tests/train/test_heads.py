"""Every kind of drafter from feature shards to a file that drafts losslessly."""

import shutil
from dataclasses import replace

import mlx.core as mx
import numpy as np
import pytest

from mlxspec.decoder.decoder import Decoder
from mlxspec.drafters.draft_model import DraftModelDrafter
from mlxspec.drafting.registry import head_drafters
from mlxspec.errors import MlxspecError
from mlxspec.loading import LoadedModel, load_head
from mlxspec.loading.heads.file import read_drafter_file
from mlxspec.loading.load import load_draft_model_file
from mlxspec.params import GenerationParams
from mlxspec.train.features import write_shards
from mlxspec.train.heads import build_objective, memory_gb, train_head
from mlxspec.train.kinds import KINDS, capture_layers
from mlxspec.train.weights import flat
from tests.support.tiny import emitted, make_engine, tiny_model
from tests.support.toy_chat import CHATML, byte_tokenizer
from tests.support.training import conversation, write_features
from tests.support.truth import Target

LAYERS = (1, 2)
SIZES = {"num_hidden_layers": 4, "tie_word_embeddings": True}
OPTIONS = {
    "medusa": {"num_heads": 2},
    "eagle3": {"depths": 2},
    "exit": {},
    "draft-model": {
        "hidden_size": 64,
        "intermediate_size": 64,
        "num_layers": 1,
        "head_dim": 32,
    },
}
PROMPT = [3, 7, 1, 3, 7, 1, 4, 3]


@pytest.fixture(scope="module")
def model():
    return tiny_model(**SIZES)


@pytest.fixture(scope="module")
def loaded(model):
    return LoadedModel(model, model.config, byte_tokenizer(CHATML), "tiny", "float32")


def test_the_taps_are_low_middle_and_high():
    assert capture_layers(30) == (2, 15, 27)
    assert capture_layers(4) == LAYERS
    assert capture_layers(2) == (1,)


@pytest.fixture(scope="module")
def shards(tmp_path_factory, model):
    return write_features(tmp_path_factory.mktemp("features"), model=model, layers=LAYERS)


def recipe_for(kind, **changes):
    recipe = replace(KINDS[kind].recipe, tokens=120, batch_tokens=30, draft_vocab_size=16)
    return replace(recipe, evaluate_every=60, options=OPTIONS[kind], **changes)


def begin(loaded, shards, recipe):
    return build_objective(loaded, shards, recipe, shards / "run")


def trained(kind, loaded, shards, folder, **changes):
    recipe, out = recipe_for(kind, **changes), folder / f"{kind}.safetensors"
    objective = build_objective(loaded, shards, recipe, folder / "run")
    progress = train_head(loaded, objective, shards, recipe, folder / "run", out)
    return out, objective, progress


@pytest.mark.parametrize("kind", KINDS)
def test_a_trained_drafter_drafts_and_changes_nothing(kind, loaded, shards, tmp_path):
    out, _, _ = trained(kind, loaded, shards, tmp_path)
    engine = make_engine(loaded.model, None)
    if kind == "draft-model":
        small = load_draft_model_file(out, loaded.tokenizer)
        drafter = DraftModelDrafter(Decoder(small.model), 24)
    else:
        (drafter,) = head_drafters(load_head(out, loaded.config), engine.target)
    params = GenerationParams(max_tokens=20)
    events = list(engine.generate(PROMPT, params, drafter=drafter))
    assert emitted(events) == Target(loaded.model).greedy(PROMPT, 20)
    assert any(event.t == "draft" for event in events)


@pytest.mark.parametrize("kind", KINDS)
def test_the_file_names_its_target_and_how_it_was_made(kind, loaded, shards, tmp_path):
    out, _, progress = trained(kind, loaded, shards, tmp_path)
    file = read_drafter_file(out)
    assert (file.kind, file.card["target"]["name"]) == (kind, "tiny")
    assert file.card["recipe"]["tokens"] == 120
    assert file.card["tokens_seen"] == progress.tokens
    assert [look["tokens"] for look in file.card["curve"]] == [
        look["tokens"] for look in progress.curve
    ]


@pytest.mark.parametrize("kind", ["medusa", "eagle3", "exit"])
def test_training_can_begin_with_the_weights_of_a_file(kind, loaded, shards, tmp_path):
    out, before, _ = trained(kind, loaded, shards, tmp_path)
    recipe = recipe_for(kind, start=str(out))
    after = begin(loaded, shards, recipe)
    weights = flat(after.network.parameters())
    for name, array in flat(before.network.parameters()).items():
        np.testing.assert_allclose(weights[name], array, atol=0.05, err_msg=name)
    assert mx.array_equal(before.network.target_ids, after.network.target_ids)


def test_a_file_names_its_start_and_no_folder(loaded, shards, tmp_path):
    first, _, _ = trained("exit", loaded, shards, tmp_path / "first")
    then, _, _ = trained("exit", loaded, shards, tmp_path / "then", start=str(first))
    card = read_drafter_file(then).card
    assert card["recipe"]["start"] == "exit.safetensors"
    assert card["begun_with"] == read_drafter_file(first).card
    assert str(tmp_path) not in str(card)


def test_a_file_of_another_kind_is_no_beginning(loaded, shards, tmp_path):
    out, _, _ = trained("exit", loaded, shards, tmp_path)
    with pytest.raises(MlxspecError, match="not a file of the kind 'medusa'"):
        begin(loaded, shards, recipe_for("medusa", start=str(out)))


def test_a_file_for_another_target_is_no_beginning(loaded, shards, tmp_path):
    out, _, _ = trained("medusa", loaded, shards, tmp_path)
    other = tiny_model(**SIZES | {"intermediate_size": 96})
    stranger = LoadedModel(other, other.config, loaded.tokenizer, "stranger", "float32")
    with pytest.raises(MlxspecError, match="not trained for stranger"):
        begin(stranger, shards, recipe_for("medusa", start=str(out)))


def test_a_file_trained_with_other_options_is_no_beginning(loaded, shards, tmp_path):
    out, _, _ = trained("medusa", loaded, shards, tmp_path)
    recipe = replace(recipe_for("medusa", start=str(out)), options={"num_heads": 3})
    with pytest.raises(MlxspecError, match="other options than the recipe's"):
        begin(loaded, shards, recipe)


@pytest.mark.parametrize("start", ["none.safetensors", "damaged.safetensors"])
def test_a_file_that_is_not_there_or_damaged_is_no_beginning(loaded, shards, tmp_path, start):
    (tmp_path / "damaged.safetensors").write_bytes(b"half")
    with pytest.raises(MlxspecError, match="not a file of the kind 'medusa'"):
        begin(loaded, shards, recipe_for("medusa", start=str(tmp_path / start)))


@pytest.mark.parametrize("kind", KINDS)
def test_an_option_that_a_kind_does_not_have_is_refused(kind, loaded, shards):
    recipe = replace(recipe_for(kind), options={"surprise": 1})
    with pytest.raises(MlxspecError, match="has no option 'surprise'"):
        begin(loaded, shards, recipe)


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("medusa", {"num_heads": 0}),
        ("medusa", {"num_blocks": 0}),
        ("eagle3", {"depths": 0}),
        ("exit", {"num_blocks": 0}),
        ("exit", {"intermediate_size": 0}),
        ("exit", {"threshold": 2.0}),
        ("draft-model", {"hidden_size": 128}),
        ("draft-model", {"hidden_size": 64, "num_layers": 0}),
    ],
)
def test_an_option_out_of_range_is_refused(kind, options, loaded, shards):
    with pytest.raises((ValueError, MlxspecError), match=list(options)[-1]):
        begin(loaded, shards, replace(recipe_for(kind), options=options))


def test_a_layer_that_the_features_do_not_hold_is_refused(loaded, shards):
    recipe = replace(recipe_for("exit"), options={"layer": 3})
    with pytest.raises(MlxspecError, match="entering the layers 1, 2, not 3"):
        begin(loaded, shards, recipe)


def test_features_of_a_target_of_another_width_are_refused(loaded, shards):
    wide = tiny_model(**SIZES | {"hidden_size": 128})
    stranger = LoadedModel(wide, wide.config, loaded.tokenizer, "wide", "float32")
    with pytest.raises(MlxspecError, match="those of wide have 128"):
        begin(stranger, shards, recipe_for("medusa"))


def test_features_without_answers_are_refused(loaded, tmp_path):
    write_features(tmp_path, model=loaded.model, layers=LAYERS, prompt=20)
    with pytest.raises(MlxspecError, match="no answers to learn from"):
        begin(loaded, tmp_path, recipe_for("medusa"))


def test_an_unknown_kind_is_refused(loaded, shards):
    with pytest.raises(MlxspecError, match="choose from medusa, eagle3, exit, draft-model"):
        begin(loaded, shards, replace(recipe_for("exit"), kind="oracle"))


def test_memory_counts_what_is_trained(loaded, shards):
    recipe = recipe_for("medusa")
    small, large = (
        begin(loaded, shards, replace(recipe, options={"num_heads": 2, "num_blocks": count}))
        for count in (1, 9)
    )
    block = 4 * 4 * (64 * 64 + 64) / 1e9
    assert memory_gb(loaded, large) - memory_gb(loaded, small) == pytest.approx(16 * block)


def test_a_run_keeps_to_the_shards_that_were_there_when_it_began(loaded, shards, tmp_path):
    features = shutil.copytree(shards, tmp_path / "features")
    (features / "run" / "shards.txt").unlink(missing_ok=True)
    _, whole, _ = trained("eagle3", loaded, features, tmp_path / "whole")
    recipe, folder = recipe_for("eagle3"), tmp_path / "grown" / "run"
    build_objective(loaded, features, recipe, folder)
    write_shards(
        loaded.model,
        [conversation(40, seed=99)],
        [("train-99999", [0])],
        features,
        LAYERS,
        lambda tokens: None,
    )
    _, grown, _ = trained("eagle3", loaded, features, tmp_path / "grown")
    expected = flat(whole.network.parameters())
    for name, array in flat(grown.network.parameters()).items():
        assert mx.array_equal(array, expected[name]), name
    assert mx.array_equal(grown.network.target_ids, whole.network.target_ids)
