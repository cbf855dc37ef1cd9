"""Recipes: TOML to checked numbers."""

import inspect
import tomllib
from dataclasses import fields

import pytest

from mlxspec.errors import MlxspecError
from mlxspec.train.heads import KINDS
from mlxspec.train.recipe import Recipe, checked_options, default_recipe, load_recipe
from tests.support.paths import ROOT

PUBLISHED = ROOT / "assets" / "recipes"


def written(folder, text):
    path = folder / "recipe.toml"
    path.write_text(text)
    return path


def test_a_recipe_has_the_values_of_the_file_and_defaults(tmp_path):
    path = written(
        tmp_path, 'kind = "eagle3"\ntokens = 5\nlearning_rate = 1\n[options]\ndepths = 4'
    )
    expected = Recipe(kind="eagle3", tokens=5, learning_rate=1.0, options={"depths": 4})
    assert load_recipe(path) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tokens = 5", "set kind"),
        ('kind = "eagle3"\nsteps = 5', "'steps'"),
        ("kind = 3", "kind"),
        ('kind = "eagle3"\ntokens = "many"', "tokens"),
        ('kind = "eagle3"\ntokens = true', "tokens"),
        ('kind = "eagle3"\nlearning_rate = -1.0', "recipe.toml: learning_rate"),
        ('kind = "eagle3"\noptions = 5', "options"),
        ('kind = "eagle3"\nseed = 1.5', "seed"),
        ("kind = ", "not a recipe that can be read"),
    ],
)
def test_says_what_is_wrong_with_a_recipe(tmp_path, text, message):
    with pytest.raises(MlxspecError, match=message):
        load_recipe(written(tmp_path, text))
    with pytest.raises(MlxspecError, match=r"none\.toml"):
        load_recipe(tmp_path / "none.toml")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("tokens", 0),
        ("batch_tokens", 0),
        ("draft_vocab_size", 0),
        ("evaluate_every", 0),
        ("num_evaluated", 0),
        ("learning_rate", float("nan")),
        ("max_gradient", 0.0),
        ("weight_decay", -0.1),
        ("patience", -1),
        ("checkpoint_seconds", -1.0),
        ("warmup", 1.0),
        ("seed", -1),
        ("seed", 1 << 64),
    ],
)
def test_a_number_out_of_range_is_refused(name, value):
    with pytest.raises(ValueError, match=f"{name} must be .*; got"):
        Recipe("medusa", **{name: value})


TYPES = {"depths": int, "decay": float, "width": int | None}


def test_options_become_arguments_of_the_objective():
    options = {"depths": 2, "decay": 1, "width": 3}
    checked = checked_options(Recipe("eagle3", options=options), TYPES)
    assert checked == options
    assert isinstance(checked["decay"], float)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"depth": 2}, "'depth'; it takes depths, decay, width"),
        ({"depths": "two"}, "depths"),
        ({"depths": True}, "depths"),
        ({"width": 0.5}, "width"),
        ({"width": -1}, "width"),
        ({"decay": float("nan")}, "decay"),
    ],
)
def test_says_what_is_wrong_with_an_option(options, message):
    with pytest.raises(ValueError, match=message):
        checked_options(Recipe("eagle3", options=options), TYPES)


@pytest.mark.parametrize("kind", KINDS)
def test_the_published_recipe_states_every_number(kind):
    path = PUBLISHED / f"{kind}.toml"
    assert default_recipe(kind).kind == kind
    assert set(tomllib.loads(path.read_text())) == {one.name for one in fields(Recipe)}


@pytest.mark.parametrize("kind", KINDS)
def test_the_published_recipe_names_every_option_with_its_usual_value(kind):
    _, options = (PUBLISHED / f"{kind}.toml").read_text().split("[options]\n")
    stated = tomllib.loads("\n".join(line.removeprefix("# ") for line in options.splitlines()))
    arguments = inspect.signature(KINDS[kind]).parameters
    usual = {name: arguments[name].default for name in KINDS[kind].option_types()}
    assert list(stated) == list(usual)
    for name, value in usual.items():
        if value not in (None, inspect.Parameter.empty):  # else it depends on the target
            assert stated[name] == value
