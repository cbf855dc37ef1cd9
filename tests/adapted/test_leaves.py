"""What a model of mlx-lm is told when it asks a cache of ours for its mask."""

import mlx.core as mx
import pytest
from mlx_lm.models.cache import KVCache, RotatingKVCache

from mlxspec.adapted.current import Current
from mlxspec.adapted.leaves import LeafPlan, RowsLeaf
from mlxspec.adapted.model import AdaptedModel
from mlxspec.decoder.decoder import Decoder
from mlxspec.errors import UnsupportedOperationError
from mlxspec.kv.cache import Cache
from tests.support.zoo import build, text_of

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


def test_layers_of_one_window_hold_the_rows_of_the_longest_mask_that_any_of_them_asked_for(current):
    """A model asks one of them for the masks of all."""
    current.cache, current.masks = Cache(4), {6: WINDOWED}
    plan = LeafPlan(current)
    leaves = [plan.leaf(cache) for cache in (KVCache(), *map(RotatingKVCache, (4, 4, 5)))]
    leaves[2].make_mask(2, window_size=6)
    assert plan.row_windows == (None, 6, 6, 5)


def test_layers_that_share_rows_get_them_as_the_first_layer_got_them():
    """Each row of a folded forward is a sequence of its own, with all rows of its text."""
    current = Current()
    current.cache, current.folded = Cache(1), (1, 3)
    leaf = RowsLeaf(current, 0, None)
    rows = mx.arange(3.0).reshape(3, 1, 1, 1)
    first = leaf.update_and_fetch(rows, rows + 10)
    for shared in (leaf.keys_and_values(), leaf.state, (leaf.keys, leaf.values)):
        assert [own.shape for own in shared] == [(3, 1, 3, 1)] * 2
        assert [own.tolist() for own in shared] == [own.tolist() for own in first]


def test_a_text_that_is_forgotten_stays_in_no_leaf():
    decoder = Decoder(AdaptedModel(build("llama")))
    decoder.observe(text_of(400))
    mx.synchronize()
    held, size = mx.get_active_memory(), decoder.cache.nbytes
    decoder.reset()
    assert held - mx.get_active_memory() > 0.9 * size
