"""The cache against a dictionary from positions to rows, and what it refuses: nothing is lost,
changed or half done then."""

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlxspec.device.packed import Quantization
from mlxspec.errors import CacheError
from mlxspec.kv.cache import Cache
from mlxspec.kv.storage import GROWTH
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
from tests.support.pairwise import each_value

SHAPES = [(None, 0), (8, 0), (8, 3), (7, 6), (12, 2), (1, 0)]  # max_size, keep


def test_a_layer_sees_its_committed_rows_then_those_staged_before_then_the_new():
    cache, truth = filled(n=3)
    first, second = random_rows(2, 100), random_rows(4, 101)
    stage(cache, first)
    seen = by_position(mx.stack(stage(cache, second)))
    expected = [*truth.rows.values(), *by_position(first), *by_position(second)]
    np.testing.assert_array_equal(seen, expected)
    assert (cache.offset, cache.num_committed, cache.num_staged) == (3, 3, 6)


@pytest.mark.parametrize("dtype", [mx.float32, mx.float16, mx.bfloat16])
def test_rows_keep_their_dtype_and_shape(dtype):
    keys = mx.ones((1, 5, 3, 16), dtype)
    seen_keys, seen_values = Cache(1).stage(0, keys, 2 * keys[..., :8])
    assert (seen_keys.dtype, seen_values.dtype) == (dtype, dtype)
    assert (seen_keys.shape, seen_values.shape) == ((1, 5, 3, 16), (1, 5, 3, 8))


# ---- commit and rollback -------------------------------------------------------------------


@each_value(num_before=[0, 5, 7, 8, 9, 30], shape=SHAPES)
def test_commits_any_branch_and_none(num_before, shape):
    for branch in ([], [0], [0, 1, 2], [2, 4, 5], [0, 1, 4, 6, 7]):
        cache, truth = filled(*shape, n=num_before)
        rows = random_rows(8, 100)
        stage(cache, rows)
        cache.commit(branch)
        truth.append([by_position(rows)[index] for index in branch])
        assert (cache.offset, cache.num_staged) == (num_before + len(branch), 0)
        assert_same(content(cache), truth.rows)


@each_value(length=[6, 12, 13, 50], shape=SHAPES)
def test_a_chunk_larger_than_the_ring_leaves_its_end(length, shape):
    cache, truth = filled(*shape, n=4)
    rows = random_rows(length, 100)
    stage(cache, rows)
    cache.commit(range(length))
    truth.append(by_position(rows))
    assert_same(content(cache), truth.rows)


rounds = st.lists(
    st.tuples(
        st.integers(1, 12),  # rows in the first pass
        st.integers(0, 5),  # rows in a second pass
        st.lists(st.booleans(), min_size=17, max_size=17),  # which of them stay
    ),
    max_size=12,
)


@settings(max_examples=60)
@given(st.sampled_from(SHAPES), rounds)
def test_any_rounds_leave_what_a_dictionary_holds(shape, rounds):
    cache, truth = filled(*shape)
    for seed, (first, second, stays) in enumerate(rounds):
        rows = random_rows(first + second, seed)
        stage(cache, rows[..., :first, :])
        if second:
            stage(cache, rows[..., first:, :])
        branch = [index for index in range(first + second) if stays[index]]
        cache.commit(branch)
        truth.append([by_position(rows)[index] for index in branch])
        assert_same(content(cache), truth.rows)


@pytest.mark.parametrize(("max_size", "keep"), [(None, 0), (GROWTH + 20, 4)])
def test_growing_over_a_step_keeps_every_row(max_size, keep):
    cache, truth = filled(max_size, keep)
    for seed, length in enumerate([GROWTH - 1, 3, GROWTH + 7, 1]):
        rows = random_rows(length, seed)
        stage(cache, rows)
        cache.commit(range(length))
        truth.append(by_position(rows))
    assert_same(content(cache), truth.rows)


def test_a_ring_does_not_grow():
    cache, _ = filled(8, 2, n=8)
    before = cache.nbytes
    for seed in range(3 * GROWTH // 16):
        stage(cache, random_rows(16, seed))
        cache.commit([0, 2, 4, 7, 11])
    assert cache.nbytes == before


def test_rows_stay_the_same_while_what_was_staged_before_is_still_unread():
    """A lazy read of one round, evaluated after the next has written over its slots."""
    cache, truth = filled(8, 2, n=12)
    first = random_rows(3, 100)
    unread = mx.stack(stage(cache, first))
    positions = cache.committed_positions().tolist()
    cache.commit([0, 2])
    stage(cache, random_rows(3, 101))
    cache.commit([0, 1, 2])
    mx.eval(cache.arrays)
    expected = [*(truth.rows[p] for p in positions), *by_position(first)]
    np.testing.assert_array_equal(by_position(unread), expected)


# ---- positions and kinds -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("max_size", "keep", "offset", "expected"),
    [
        (None, 0, 5, [0, 1, 2, 3, 4]),
        (4, 1, 3, [0, 1, 2]),
        (4, 1, 4, [0, 1, 2, 3]),
        (4, 1, 5, [0, 4, 2, 3]),
        (4, 1, 8, [0, 7, 5, 6]),
        (4, 0, 6, [4, 5, 2, 3]),
        (3, 2, 9, [0, 1, 8]),
    ],
)
def test_each_slot_knows_its_position(max_size, keep, offset, expected):
    cache, _ = filled(max_size, keep, n=offset)
    assert cache.committed_positions().tolist() == expected


def test_an_empty_copy_is_of_the_same_kind_and_a_reset_forgets_everything():
    packing = Quantization.for_head_dim(8, SIZE)
    cache, _ = filled(8, 2, n=12, quantization=packing)
    stage(cache, random_rows(3, 100))
    other = cache.empty_like()
    assert (other.max_size, other.keep, other.quantization) == (8, 2, packing)
    assert (other.offset, other.nbytes, cache.offset) == (0, 0, 12)
    cache.reset()
    assert (cache.offset, cache.num_staged, cache.nbytes) == (0, 0, 0)
    for one in (cache, other):
        stage(one, random_rows(2, 101))
        one.commit([0, 1])
    assert sorted(content(cache)) == [0, 1]
    assert_same(content(cache), content(other))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({}, "full"),
        ({"max_size": 64, "keep": 4}, "rotating 64 (4 kept)"),
        ({"quantization": Quantization(4, 64)}, "full, 4-bit"),
    ],
)
def test_describes_its_kind(settings, words):
    assert Cache(LAYERS, **settings).describe() == words


# ---- truncation ----------------------------------------------------------------------------


@pytest.mark.parametrize(("max_size", "keep"), [(None, 0), (12, 2)])
@pytest.mark.parametrize("length", [0, 1, 5, 10])
def test_truncating_keeps_the_first_rows_and_forgets_staged_ones(max_size, keep, length):
    cache, truth = filled(max_size, keep, n=10)
    stage(cache, random_rows(3, 99))
    cache.truncate(length)
    assert cache.num_staged == 0
    rows = random_rows(4, 100)
    stage(cache, rows)
    cache.commit(range(4))
    after = DictCache(max_size, keep)
    after.append([truth.rows[p] for p in range(length)] + by_position(rows))
    assert_same(content(cache), after.rows)


@pytest.mark.parametrize(
    ("shape", "n", "lengths", "message"),
    [
        ((None, 0), 4, [-1, 5], "the cache holds 4"),
        ((None, 0), 0, [1], "cannot go back to 1 tokens: the cache holds 0"),
        ((8, 2), 9, range(9), "the cache holds 9 in a ring of 8"),  # evicted rows
        ((8, 2), 12, range(12), "the cache holds 12 in a ring of 8"),
    ],
)
def test_refuses_to_truncate_to_what_it_does_not_hold(shape, n, lengths, message):
    cache, truth = filled(*shape, n=n)
    for length in lengths:
        assert not cache.can_truncate(length)
        with pytest.raises(CacheError, match=message):
            cache.truncate(length)
    assert cache.offset == n
    assert not n or sorted(content(cache)) == sorted(truth.rows)


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
    with pytest.raises(CacheError, match=r"cannot commit rows .* of 5 staged ones"):
        cache.commit(rows)
    assert (cache.offset, cache.num_staged) == (12, 5)
    cache.rollback()
    assert_same(content(cache), truth.rows)


@pytest.mark.parametrize(
    ("keys", "values"),
    [
        ((1, 3, 2, 32), (1, 3, 1, 32)),  # another length
        ((1, 3, 2, 32), (1, 2, 2, 32)),  # other heads
        ((3, 2, 32), (3, 2, 32)),  # no batch
    ],
)
def test_refuses_keys_and_values_that_do_not_pair_up(keys, values):
    with pytest.raises(CacheError, match=r"must both be \(B, Hkv, L, D\)"):
        Cache(LAYERS).stage(0, mx.zeros(keys), mx.zeros(values))


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
    cache, _ = filled(n=3, quantization=packing)
    before = content(cache)
    rows, others = mx.zeros(shape, dtype), mx.zeros((*shape[:3], SIZE))
    for keys, values in ((rows, others), (others, rows)):
        with pytest.raises(CacheError, match="do not fit"):
            cache.stage(0, keys, values)
        assert cache._staged == [0] * LAYERS
    assert_same(content(cache), before)


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
