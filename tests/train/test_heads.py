"""Every kind of drafter from feature shards to a file that drafts losslessly."""

import shutil
from dataclasses import replace

import mlx.core as mx
import numpy as np
import pytest

from mlxspec.decoder.decoder import Decoder
from mlxspec.drafters.draft_model import DraftModelDrafter
from mlxspec.drafting.heads import head_drafters
from mlxspec.errors import MlxspecError
from mlxspec.loading import LoadedModel, load_head
from mlxspec.loading.heads.file import read_drafter_file
from mlxspec.loading.load import load_draft_model_file
from mlxspec.params import GenerationParams
from mlxspec.train.features import compute_features, write_shards
from mlxspec.train.heads import KINDS, build_objective, memory_gb, pack, train_head
from mlxspec.train.objective import capture_layers, flat
from mlxspec.train.recipe import default_recipe
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
    "draft-model": {"hidden_size": 64, "intermediate_size": 64, "num_layers": 1, "head_dim": 32},
}
PROMPT = [3, 7, 1, 3, 7, 1, 4, 3]


@pytest.fixture(scope="module")
def model():
    return tiny_model(**SIZES)


@pytest.fixture(scope="module")
def loaded(model):
    return LoadedModel(model, byte_tokenizer(CHATML), "tiny", "float32")


def test_the_taps_are_low_middle_and_high():
    assert capture_layers(30) == (2, 15, 27)
    assert capture_layers(4) == LAYERS
    assert capture_layers(2) == (1,)


@pytest.fixture(scope="module")
def shards(tmp_path_factory, model):
    return write_features(tmp_path_factory.mktemp("features"), model=model, layers=LAYERS)


def recipe_for(kind, **changes):
    recipe = replace(default_recipe(kind), tokens=120, batch_tokens=30, draft_vocab_size=16)
    return replace(recipe, evaluate_every=60, options=OPTIONS[kind], **changes)


def begin(loaded, shards, recipe):
    return build_objective(loaded, shards, recipe, shards / "run")


def trained(kind, loaded, shards, folder, **changes):
    recipe, out = recipe_for(kind, **changes), folder / f"{kind}.safetensors"
    objective = build_objective(loaded, shards, recipe, folder / "run")
    train_head(loaded, objective, shards, recipe, folder / "run", out)
    return out, objective


@pytest.fixture(scope="module")
def made(loaded, shards, tmp_path_factory):
    """File and objective of each kind, trained once."""
    folder = tmp_path_factory.mktemp("made")
    return {kind: trained(kind, loaded, shards, folder / kind) for kind in KINDS}


@pytest.mark.parametrize("kind", KINDS)
def test_a_trained_drafter_drafts_and_changes_nothing(kind, loaded, made):
    out, _ = made[kind]
    engine = make_engine(loaded.model, None)
    if kind == "draft-model":
        small = load_draft_model_file(read_drafter_file(out), loaded.tokenizer)
        drafter = DraftModelDrafter(Decoder(small.model), 24)
    else:
        (drafter,) = head_drafters(load_head(out, loaded.config), engine.target)
    params = GenerationParams(max_tokens=20)
    events = list(engine.generate(PROMPT, params, drafter=drafter))
    assert emitted(events) == Target(loaded.model).greedy(PROMPT, 20)
    assert any(event.t == "draft" for event in events)
    card = read_drafter_file(out).card
    assert card["tokens_seen"] == card["curve"][-1]["tokens"] >= card["recipe"]["tokens"] == 120


@pytest.mark.parametrize("kind", KINDS)
def test_a_conversation_without_an_answer_teaches_and_counts_nothing(kind, loaded, made):
    _, objective = made[kind]
    texts = [conversation(30, seed=5), conversation(6, prompt=6)]
    answered, silent = (compute_features(loaded.model, text, LAYERS) for text in texts)
    assert objective.loss(silent).item() == 0
    assert objective.evaluate([answered, silent]) == objective.evaluate([answered])


@pytest.mark.parametrize("kind", ["medusa", "eagle3", "exit"])
def test_training_can_begin_with_the_weights_of_a_file(kind, loaded, shards, made):
    out, before = made[kind]
    after = begin(loaded, shards, recipe_for(kind, start=str(out)))
    weights = flat(after.network.parameters())
    for name, array in flat(before.network.parameters()).items():
        np.testing.assert_allclose(weights[name], array, atol=0.05, err_msg=name)
    assert mx.array_equal(before.network.target_ids, after.network.target_ids)


def test_a_file_names_its_start_and_no_folder(loaded, shards, made, tmp_path):
    first, _ = made["exit"]
    then, _ = trained("exit", loaded, shards, tmp_path / "then", start=str(first))
    card = read_drafter_file(then).card
    assert card["recipe"]["start"] == "exit.safetensors"
    assert card["begun_with"] == read_drafter_file(first).card
    assert str(first.parent.parent) not in str(card)


def test_a_file_of_another_training_is_no_beginning(loaded, shards, made, tmp_path):
    other = tiny_model(**SIZES | {"intermediate_size": 96})
    stranger = LoadedModel(other, loaded.tokenizer, "stranger", "float32")
    damaged = tmp_path / "damaged.safetensors"
    damaged.write_bytes(b"half")
    medusa = recipe_for("medusa", start=str(made["medusa"][0]))
    for target, recipe, message in (
        (loaded, replace(medusa, start=str(made["exit"][0])), "not a file of the kind 'medusa'"),
        (loaded, replace(medusa, start=str(damaged)), "not a file of the kind 'medusa'"),
        (loaded, replace(medusa, start=str(tmp_path / "none")), "not a file of the kind 'medusa'"),
        (loaded, replace(medusa, options={"num_heads": 3}), "other options than the recipe's"),
        (stranger, medusa, "not trained for stranger"),
    ):
        with pytest.raises(MlxspecError, match=message):
            begin(target, shards, recipe)


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("medusa", {"surprise": 1}),
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
def test_an_option_that_a_kind_cannot_have_is_refused(kind, options, loaded, shards):
    with pytest.raises((ValueError, MlxspecError), match=list(options)[-1]):
        begin(loaded, shards, replace(recipe_for(kind), options=options))


def test_a_layer_that_the_features_do_not_hold_is_refused(loaded, shards):
    recipe = replace(recipe_for("exit"), options={"layer": 3})
    with pytest.raises(MlxspecError, match="entering the layers 1, 2, not 3"):
        begin(loaded, shards, recipe)


def test_features_of_a_target_of_another_width_are_refused(loaded, shards):
    wide = tiny_model(**SIZES | {"hidden_size": 128})
    stranger = LoadedModel(wide, loaded.tokenizer, "wide", "float32")
    with pytest.raises(MlxspecError, match="those of wide have 128"):
        begin(stranger, shards, recipe_for("medusa"))


def test_features_without_answers_are_refused(loaded, tmp_path):
    write_features(tmp_path, model=loaded.model, layers=LAYERS, prompt=20)
    with pytest.raises(MlxspecError, match="no answers to learn from"):
        begin(loaded, tmp_path, recipe_for("medusa"))


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
    _, whole = trained("eagle3", loaded, features, tmp_path / "whole")
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
    _, grown = trained("eagle3", loaded, features, tmp_path / "grown")
    expected = flat(whole.network.parameters())
    for name, array in flat(grown.network.parameters()).items():
        assert mx.array_equal(array, expected[name]), name
    assert mx.array_equal(grown.network.target_ids, whole.network.target_ids)


def normal(*shape):
    return mx.random.normal(shape, key=mx.random.key(0))


def test_a_file_has_quantised_matrices_and_all_else_in_bfloat16():
    tensors = {
        "a.weight": normal(4, 64),
        "b.weight": normal(4, 40),
        "norm.weight": normal(64),
        "target_ids": mx.array([3, 70_000], mx.int32),
        "model.layers.0.weight": normal(4, 64),
    }
    packed, quantization = pack(tensors, 4, layer_bits=8)
    assert {packed[name].dtype for name in ("b.weight", "norm.weight")} == {mx.bfloat16}
    assert packed["target_ids"].tolist() == [3, 70_000]
    assert packed["model.layers.0.weight"].nbytes == 2 * packed["a.weight"].nbytes
    own = {"group_size": 64, "bits": 8}
    assert quantization == {"group_size": 64, "bits": 4, "model.layers.0": own}
    parts = [packed[f"model.layers.0.{part}"] for part in ("weight", "scales", "biases")]
    got = mx.dequantize(*parts, 64, 8).astype(mx.float32)
    np.testing.assert_allclose(got, tensors["model.layers.0.weight"], atol=0.015)
