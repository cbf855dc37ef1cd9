"""The training loop learns, resumes bit for bit, stops early and keeps the best weights."""

from dataclasses import replace

import mlx.core as mx
import pytest
from mlx import nn
from mlx.utils import tree_flatten

from mlxspec.errors import MlxspecError
from mlxspec.train.recipe import Recipe
from mlxspec.train.trainer import train
from tests.support.training import Regression, write_features

RECIPE = Recipe(
    kind="eagle3",
    tokens=600,
    batch_tokens=30,
    learning_rate=0.03,
    evaluate_every=100,
    checkpoint_seconds=0.0,
)


class Interrupted(Exception):
    pass


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    return write_features(tmp_path_factory.mktemp("features"))


def weights(objective):
    return dict(tree_flatten(objective.network.parameters()))


def interrupt_at(step):
    def report(progress):
        if progress.step == step:
            raise Interrupted

    return report


@pytest.fixture(scope="module")
def whole(shards, tmp_path_factory):
    """Objective, folder, progress and losses of a run without an interruption."""
    objective, losses, folder = Regression(), [], tmp_path_factory.mktemp("whole")
    progress = train(objective, shards, RECIPE, folder, lambda now: losses.append(now.loss))
    return objective, folder, progress, losses


def assert_same_weights(one, other):
    for name, array in weights(one).items():
        assert mx.array_equal(array, weights(other)[name]), name


def test_a_run_learns_and_reads_a_corpus_again_that_is_shorter_than_the_recipe(whole):
    _, _, progress, losses = whole
    assert losses[-1] < 0.9 * losses[0]
    assert progress.tokens >= RECIPE.tokens
    assert progress.epoch > 1


def test_an_interrupted_run_ends_with_the_weights_of_one_that_was_not(whole, shards, tmp_path):
    objective, _, expected, _ = whole
    with pytest.raises(Interrupted):
        train(Regression(), shards, RECIPE, tmp_path, interrupt_at(7))
    resumed = Regression(seed=1)  # whatever it begins with, the checkpoint replaces it
    got = train(resumed, shards, RECIPE, tmp_path)
    assert (got.tokens, got.step, got.epoch) == (expected.tokens, expected.step, expected.epoch)
    assert_same_weights(objective, resumed)


def test_the_best_weights_are_restored_at_the_end(shards, tmp_path):
    objective = Regression()
    figures = iter([1.5, 1.9, 1.2, 1.1, 1.3, 1.0, 1.0, 1.0])
    seen = []

    def evaluate(conversations):
        seen.append(weights(objective))
        return {"mean_acceptance_length": next(figures)}

    objective.evaluate = evaluate
    progress = train(objective, shards, RECIPE, tmp_path)
    assert progress.best == 1.9
    for name, array in weights(objective).items():
        assert mx.array_equal(array, seen[1][name]), name


def test_training_stops_when_held_out_text_gains_no_more(shards, tmp_path):
    objective = Regression()
    objective.evaluate = lambda conversations: {"mean_acceptance_length": 1.5}
    recipe = replace(RECIPE, patience=2)
    progress = train(objective, shards, recipe, tmp_path)
    assert len(progress.curve) == 3
    assert progress.tokens < RECIPE.tokens


def test_a_checkpoint_of_another_target_is_refused(whole, shards):
    _, folder, _, _ = whole
    stranger = Regression()
    stranger.network = nn.Linear(64, 32)
    with pytest.raises(MlxspecError, match="another target"):
        train(stranger, shards, RECIPE, folder)


def test_a_run_that_is_over_is_not_gone_on_with(whole, shards):
    objective, folder, expected, _ = whole
    again, seen = Regression(seed=1), []
    assert train(again, shards, RECIPE, folder, seen.append) == expected
    assert seen == []
    assert_same_weights(objective, again)


@pytest.mark.parametrize("content", [b"", b"half a file", None])
def test_a_damaged_checkpoint_is_named(shards, tmp_path, content):
    path = tmp_path / "checkpoint.safetensors"
    if content is None:
        mx.save_safetensors(str(path), {"network.weight": mx.ones((64, 64))}, {"progress": "{"})
    else:
        path.write_bytes(content)
    with pytest.raises(MlxspecError, match=r"checkpoint\.safetensors"):
        train(Regression(), shards, RECIPE, tmp_path)


@pytest.mark.parametrize("settings", [{"kind": 2}, {"num_heldout": 0}])
def test_training_needs_held_out_greedy_answers(settings, tmp_path):
    write_features(tmp_path, **settings)
    with pytest.raises(MlxspecError, match="no held-out conversation with a greedy answer"):
        train(Regression(), tmp_path, RECIPE, tmp_path / "run")
    assert not (tmp_path / "run" / "checkpoint.safetensors").exists()


def test_a_checkpoint_that_cannot_be_written_is_an_error_of_ours(shards, tmp_path):
    (tmp_path / "best.safetensors").mkdir()
    with pytest.raises(MlxspecError, match=r"cannot write .*best"):
        train(Regression(), shards, RECIPE, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "best.safetensors",
        "checkpoint.safetensors",
        "shards.txt",
    ]
