"""What a model of mlx-lm is told when it asks a cache of ours for its mask."""

import mlx.core as mx
import pytest

from mlxspec.adapted.current import Current
from mlxspec.adapted.leaves import RowsLeaf
from mlxspec.errors import UnsupportedOperationError
from mlxspec.kv.cache import Cache

WINDOWED = mx.array([[True, False], [True, True]])


@pytest.fixture
def current():
    current = Current()
    current.offset = 2
    current.cache = Cache(2, windows=(None, 4))
    current.masks = {None: "causal", 4: WINDOWED}
    return current


def test_a_word_stays_a_word(current):
    assert RowsLeaf(current, 0, None).make_mask(3) == "causal"


@pytest.mark.parametrize("word", ["causal", None])
def test_a_word_becomes_an_array_where_a_model_needs_one(current, word):
    current.masks = {None: word}
    mask = RowsLeaf(current, 0, None).make_mask(3, return_array=True)
    assert mask.tolist() == [
        [True, True, True, False, False],
        [True, True, True, True, False],
        [True, True, True, True, True],
    ]


def test_a_window_is_asked_for_or_that_of_the_cache(current):
    full, windowed = RowsLeaf(current, 0, None), RowsLeaf(current, 1, 4)
    assert full.make_mask(2, window_size=4) is WINDOWED
    assert windowed.make_mask(2) is WINDOWED
    assert windowed.make_mask(2, return_array=True) is WINDOWED


def test_a_window_without_a_mask_is_named(current):
    with pytest.raises(UnsupportedOperationError, match="a window of 5 tokens"):
        RowsLeaf(current, 0, None).make_mask(2, window_size=5)
