"""The training loop: it learns, it resumes bit for bit, it stops early, it keeps the best."""

import mlx.core as mx
import pytest
from mlx.utils import tree_flatten

from mlxspec.errors import MlxspecError
from mlxspec.train.recipe import Recipe
from mlxspec.train.trainer import train
from tests.training import Regression, write_features

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


def test_the_loss_falls(shards, tmp_path):
    losses = []
    train(Regression(), shards, RECIPE, tmp_path, lambda progress: losses.append(progress.loss))
    assert losses[-1] < 0.9 * losses[0]


def test_an_interrupted_run_ends_with_the_weights_of_one_that_was_not(shards, tmp_path):
    whole, broken = Regression(), Regression()
    expected = train(whole, shards, RECIPE, tmp_path / "whole")
    with pytest.raises(Interrupted):
        train(broken, shards, RECIPE, tmp_path / "broken", interrupt_at(7))
    resumed = Regression(seed=1)  # whatever it begins with, the checkpoint replaces it
    got = train(resumed, shards, RECIPE, tmp_path / "broken")
    assert (got.tokens, got.step, got.epoch) == (expected.tokens, expected.step, expected.epoch)
    for name, array in weights(whole).items():
        assert mx.array_equal(array, weights(resumed)[name]), name


def test_the_best_weights_are_kept_whatever_comes_after(shards, tmp_path):
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
    recipe = Recipe(**{**RECIPE.as_dict(), "patience": 2})
    progress = train(objective, shards, recipe, tmp_path)
    assert len(progress.curve) == 3
    assert progress.tokens < RECIPE.tokens


def test_the_corpus_is_read_again_when_it_is_shorter_than_the_recipe(shards, tmp_path):
    progress = train(Regression(), shards, RECIPE, tmp_path)
    assert progress.tokens >= RECIPE.tokens
    assert progress.epoch > 1


def test_a_checkpoint_of_another_recipe_is_refused(shards, tmp_path):
    train(Regression(), shards, RECIPE, tmp_path)
    other = Recipe(**{**RECIPE.as_dict(), "learning_rate": 0.5})
    with pytest.raises(MlxspecError, match="another recipe"):
        train(Regression(), shards, other, tmp_path)


def test_says_what_to_do_where_there_are_no_features(tmp_path):
    with pytest.raises(MlxspecError, match="mlxspec train features"):
        train(Regression(), tmp_path, RECIPE, tmp_path / "run")
