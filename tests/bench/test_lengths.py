"""The figures by length of context: what is measured, on a model small enough to count by hand."""

import mlx.core as mx
import pytest

from mlxspec.bench.context import context_lengths
from mlxspec.bench.lengths import as_text, context_costs, filled, steadiness
from mlxspec.drafters.none import NoDrafter
from mlxspec.kv.cache import Cache
from tests.support.tiny import make_engine, tiny_model

MODEL = tiny_model(max_position_embeddings=512)


def test_a_cache_is_filled_to_its_length():
    full = filled(Cache(2), MODEL, 700)
    ring = filled(Cache(2, max_size=64, keep=4), MODEL, 700)
    assert (full.offset, full.num_committed) == (700, 700)
    assert (ring.offset, ring.num_committed) == (700, 64)
    assert all(mx.abs(array).sum().item() > 0 for array in full.arrays)


def test_texts_beyond_the_positions_of_the_model_get_a_ring():
    costs = context_costs(MODEL, [100, 2000], ring=64, widths=(1, 2), repeats=1)
    assert [cost.cache for cost in costs] == ["full", "rotating 64 (4 kept)"]
    assert [cost.length for cost in costs] == [100, 2000]
    assert all(set(cost.ms) == {1, 2} and min(cost.ms.values()) > 0 for cost in costs)
    assert len(as_text(costs).splitlines()) == 3


def test_the_same_cache_in_fewer_bits_takes_less():
    sizes = [
        context_costs(MODEL, [300], kv_bits=bits, widths=(1,), repeats=1)[0].cache_bytes
        for bits in (None, 8, 4)
    ]
    assert sizes[0] > sizes[1] > sizes[2]


def test_a_long_reply_with_a_ring_ends_with_the_memory_it_began_with():
    found = steadiness(make_engine(MODEL, NoDrafter(), "rotating"), 100, "abc")
    assert (found.tokens, found.rounds) == (100, 90)
    assert found.last_bytes < 1.02 * found.first_bytes  # random keys come and go
    assert min(found.first_ms, found.last_ms) > 0


def test_refuses_a_reply_that_leaves_room_in_the_ring():
    with pytest.raises(ValueError, match="8 tokens are too few to fill a ring of 12"):
        steadiness(make_engine(MODEL, NoDrafter(), "rotating"), 8, "abc")


def test_reads_lengths():
    assert context_lengths("1k,8000, 100K") == [1024, 8000, 102_400]


@pytest.mark.parametrize("text", ["", "k", "1k,,2k", "-1", "0", "1.5k"])
def test_refuses_what_is_no_length(text):
    with pytest.raises(ValueError, match="lengths are numbers of tokens"):
        context_lengths(text)
