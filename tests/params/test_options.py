"""`load` and `wrap` take the settings of `Options`, as one object or by name."""

from typing import get_type_hints

import mlx.nn as nn
import pytest

import mlxspec
from mlxspec.params import Options, OptionsDict
from mlxspec.params.load import MODEL
from tests.support.model_folders import save_folder


def test_the_keyword_arguments_are_the_fields():
    assert get_type_hints(OptionsDict) == get_type_hints(Options)
    assert MODEL.name not in get_type_hints(Options)


def test_a_setting_by_name_comes_before_the_same_one_of_the_object(tmp_path):
    engine = mlxspec.load(save_folder(tmp_path), Options("suffix", max_kv_size=32), drafter="none")
    assert engine.drafter.name == "none"
    assert "32" in engine.target.cache.describe()


@pytest.mark.parametrize("call", [mlxspec.load, lambda **given: mlxspec.wrap(None, None, **given)])
def test_an_unknown_setting_is_named_before_anything_is_read(call):
    with pytest.raises(TypeError, match="'drafters'"):
        call(drafters="pool")


@pytest.mark.parametrize("given", [{"port": "own"}, {"hosts": "2"}, {"dtype": "float16"}])
def test_a_model_that_is_loaded_is_not_loaded_otherwise(given):
    with pytest.raises(ValueError, match=next(iter(given))):
        mlxspec.wrap(nn.Module(), None, **given)
