"""What a cache refuses: nothing is lost, changed or half done when it does."""

import mlx.core as mx
import pytest

from mlxspec.device.packed import Quantization
from mlxspec.errors import CacheError
from mlxspec.kv.cache import Cache
from tests.support.dict_cache import (
    LAYERS,
    SIZE,
    DictCache,
    assert_same,
    by_position,
    content,
    filled,
    random_rows,
    stage,
)

# ---- truncation ----------------------------------------------------------------------------


@pytest.mark.parametrize(("max_size", "keep"), [(None, 0), (12, 2)])
@pytest.mark.parametrize("length", [0, 1, 5, 10])
def test_truncating_keeps_the_first_rows(max_size, keep, length):
    cache, truth = filled(max_size, keep, n=10)
    cache.truncate(length)
    rows = random_rows(4, 100)
    stage(cache, rows)
    cache.commit(range(4))
    after = DictCache(max_size, keep)
    after.append([truth.rows[p] for p in range(length)] + by_position(rows))
    assert_same(content(cache), after.rows)


def test_truncating_forgets_staged_rows():
    cache, truth = filled(n=4)
    stage(cache, random_rows(3, 100))
    cache.truncate(4)
    assert cache.num_staged == 0
    assert_same(content(cache), truth.rows)


@pytest.mark.parametrize("length", [-1, 5])
def test_refuses_to_truncate_to_what_it_does_not_hold(length):
    cache, truth = filled(n=4)
    with pytest.raises(CacheError, match="the cache holds 4"):
        cache.truncate(length)
    assert_same(content(cache), truth.rows)


def test_refuses_to_truncate_an_empty_cache():
    with pytest.raises(CacheError, match="cannot go back to 1 tokens: the cache holds 0"):
        Cache(LAYERS).truncate(1)


@pytest.mark.parametrize("n", [9, 12])
def test_a_wrapped_ring_refuses_to_go_back_to_rows_it_has_evicted(n):
    cache, truth = filled(8, 2, n=n)
    for length in range(n):
        assert not cache.can_truncate(length)
        with pytest.raises(CacheError, match=f"the cache holds {n} in a ring of 8"):
            cache.truncate(length)
    assert_same(content(cache), truth.rows)


def test_a_ring_that_is_just_full_goes_back_anywhere():
    cache, truth = filled(8, 2, n=8)
    assert all(cache.can_truncate(length) for length in range(9))
    cache.truncate(3)
    assert_same(content(cache), {p: truth.rows[p] for p in range(3)})


# ---- rows that do not fit ------------------------------------------------------------------


@pytest.mark.parametrize("rows", [[5], [-1], [0, 0], [0, 1, 7], [1, 2, 1]])
def test_refuses_to_commit_rows_that_are_not_staged_or_twice(rows):
    cache, truth = filled(8, 2, n=12)
    stage(cache, random_rows(5, 100))
    with pytest.raises(CacheError, match="cannot commit rows"):
        cache.commit(rows)
    assert (cache.offset, cache.num_staged) == (12, 5)
    cache.rollback()
    assert_same(content(cache), truth.rows)


def test_refuses_to_commit_where_nothing_is_staged():
    with pytest.raises(CacheError, match="of 0 staged ones"):
        Cache(LAYERS).commit([0])


@pytest.mark.parametrize(
    ("keys", "values"),
    [
        ((1, 3, 2, 32), (1, 3, 1, 32)),  # another length
        ((1, 3, 2, 32), (1, 2, 2, 32)),  # other heads
        ((3, 2, 32), (3, 2, 32)),  # no batch
    ],
)
def test_refuses_keys_and_values_that_do_not_pair_up(keys, values):
    cache, truth = filled(n=3)
    with pytest.raises(CacheError, match=r"must both be \(B, Hkv, L, D\)"):
        cache.stage(0, mx.zeros(keys), mx.zeros(values))
    assert_same(content(cache), truth.rows)


@pytest.mark.parametrize("packing", [None, Quantization(8, 32)])
@pytest.mark.parametrize(
    ("shape", "dtype"),
    [
        ((2, 3, 1, 32), mx.float32),
        ((1, 1, 1, 32), mx.float32),  # MLX would broadcast these two
        ((1, 3, 1, 1), mx.float32),
        ((1, 3, 1, 64), mx.float32),
        ((1, 3, 1, 32), mx.float16),  # and cast this one
    ],
)
def test_refuses_rows_unlike_those_it_holds_and_stages_neither_keys_nor_values(
    shape, dtype, packing
):
    cache, truth = filled(n=3, quantization=packing)
    before = content(cache)
    rows, others = mx.zeros(shape, dtype), mx.zeros((*shape[:3], SIZE))
    for keys, values in ((rows, others), (others, rows)):
        with pytest.raises(CacheError, match="do not fit"):
            cache.stage(0, keys, values)
        assert cache._staged == [0] * LAYERS
    assert_same(content(cache), before)
    assert len(before) == truth.offset


def test_rows_staged_in_some_layers_only_cannot_be_committed():
    cache, truth = filled(n=3)
    cache.stage(0, *random_rows(1, 100)[0])
    with pytest.raises(AssertionError, match="some layers only"):
        cache.commit([0])
    cache.rollback()
    assert_same(content(cache), truth.rows)


@pytest.mark.parametrize(("max_size", "keep"), [(4, 4), (2, 5), (0, 0), (-3, 0), (8, -1)])
def test_refuses_a_ring_without_room_beside_the_kept_tokens(max_size, keep):
    with pytest.raises(ValueError, match=r"max_size must be larger|0 or more; got -1"):
        Cache(LAYERS, max_size=max_size, keep=keep)
