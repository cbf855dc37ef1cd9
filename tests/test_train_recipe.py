"""Recipes: TOML to checked numbers."""

import pytest

from mlxspec.errors import MlxspecError
from mlxspec.train.recipe import Recipe, load_recipe


def written(folder, text):
    path = folder / "recipe.toml"
    path.write_text(text)
    return path


def test_a_recipe_takes_what_the_file_says_and_defaults_for_the_rest(tmp_path):
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
        ('kind = "eagle3"\ntokens = "many"', "type int"),
        ('kind = "eagle3"\ntokens = true', "type int"),
        ('kind = "eagle3"\nlearning_rate = -1.0', "negative"),
        ("kind = ", "no recipe that can be read"),
    ],
)
def test_says_what_is_wrong_with_a_recipe(tmp_path, text, message):
    with pytest.raises(MlxspecError, match=message):
        load_recipe(written(tmp_path, text))


def test_says_that_there_is_no_such_file(tmp_path):
    with pytest.raises(MlxspecError, match="no recipe that can be read"):
        load_recipe(tmp_path / "none.toml")
