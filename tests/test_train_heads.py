"""Every kind of drafter from feature shards to a file that drafts losslessly."""

from dataclasses import replace

import mlx.core as mx
import numpy as np
import pytest

from mlxspec.choosing.trained import head_drafters
from mlxspec.decoder import Decoder
from mlxspec.drafters.draft_model import DraftModelDrafter
from mlxspec.errors import MlxspecError
from mlxspec.loading import LoadedModel, load_head
from mlxspec.loading.draft_model_file import load_draft_model_file
from mlxspec.loading.shipped import read_drafter_file
from mlxspec.reply import GenerationParams
from mlxspec.train.arrays import flat
from mlxspec.train.heads import KINDS, build_objective, capture_layers, memory_gb, train_head
from tests.tiny import emitted, make_engine, tiny_model
from tests.toy_chat import CHATML, byte_tokenizer
from tests.training import write_features
from tests.truth import Target

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


def trained(kind, loaded, shards, folder, **changes):
    recipe, out = recipe_for(kind, **changes), folder / f"{kind}.safetensors"
    objective = build_objective(loaded, shards, recipe)
    progress = train_head(loaded, objective, shards, recipe, folder / "run", out)
    return out, objective, progress


@pytest.mark.parametrize("kind", KINDS)
def test_a_trained_drafter_drafts_and_changes_nothing(kind, loaded, shards, tmp_path):
    out, _, _ = trained(kind, loaded, shards, tmp_path)
    engine = make_engine(loaded.model, None)
    if kind == "draft-model":
        small = load_draft_model_file(out, loaded.tokenizer)
        engine.drafter = DraftModelDrafter(Decoder(small.model), 24)
    else:
        (engine.drafter,) = head_drafters(load_head(out, loaded.config), engine.target)
    events = list(engine.generate(PROMPT, GenerationParams(max_tokens=20)))
    assert emitted(events) == Target(loaded.model).greedy(PROMPT, 20)
    assert any(event.t == "draft" for event in events)


@pytest.mark.parametrize("kind", KINDS)
def test_the_file_says_what_it_is_for_and_how_it_was_made(kind, loaded, shards, tmp_path):
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
    after = build_objective(loaded, shards, recipe)
    weights = flat(after.network.parameters())
    for name, array in flat(before.network.parameters()).items():
        np.testing.assert_allclose(weights[name], array, atol=0.05, err_msg=name)
    assert mx.array_equal(before.network.target_ids, after.network.target_ids)


def test_a_file_of_another_kind_is_no_beginning(loaded, shards, tmp_path):
    out, _, _ = trained("exit", loaded, shards, tmp_path)
    with pytest.raises(MlxspecError, match="no file of the kind 'medusa'"):
        build_objective(loaded, shards, recipe_for("medusa", start=str(out)))


def test_an_unknown_kind_is_refused(loaded, shards):
    with pytest.raises(MlxspecError, match="choose from medusa, eagle3, exit, draft-model"):
        build_objective(loaded, shards, replace(recipe_for("exit"), kind="oracle"))


def test_memory_counts_what_is_trained(loaded, shards):
    small = build_objective(loaded, shards, recipe_for("medusa"))
    large = build_objective(
        loaded, shards, replace(recipe_for("medusa"), options={"num_heads": 2, "num_blocks": 9})
    )
    block = 4 * 4 * (64 * 64 + 64) / 1e9
    assert memory_gb(loaded, large) - memory_gb(loaded, small) == pytest.approx(16 * block)
