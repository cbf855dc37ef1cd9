"""Rounds behind long texts, on a model small enough to count by hand."""

import mlx.core as mx

from mlxspec.kv.cache import Cache
from tests.campaigns.long_texts import as_text, context_costs, filled
from tests.support.tiny import tiny_model

MODEL = tiny_model(max_position_embeddings=512)


def test_a_cache_is_filled_to_its_length():
    full = filled(Cache(2), MODEL, 700)
    ring = filled(Cache(2, max_size=64, keep=4), MODEL, 700)
    assert (full.offset, full.num_committed) == (700, 700)
    assert (ring.offset, ring.num_committed) == (700, 64)
    assert all(mx.abs(array).sum().item() > 0 for array in full.arrays)


def test_texts_beyond_the_positions_of_the_model_get_a_ring():
    costs = context_costs(MODEL, [100, 2000], ring=64, widths=(1, 2))
    assert [cost.cache for cost in costs] == ["full", "rotating 64 (4 kept)"]
    assert [cost.length for cost in costs] == [100, 2000]
    assert all(set(cost.ms) == {1, 2} and min(cost.ms.values()) > 0 for cost in costs)
    assert len(as_text(costs).splitlines()) == 3
