"""The cache against a dictionary from positions to rows."""

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlxspec.device.packed import Quantization
from mlxspec.kv.cache import Cache
from mlxspec.kv.storage import GROWTH
from tests.support.dict_cache import (
    LAYERS,
    SIZE,
    assert_same,
    by_position,
    content,
    filled,
    random_rows,
    stage,
)
from tests.support.pairwise import each_value

EXAMPLES = settings(max_examples=60)
SHAPES = [(None, 0), (8, 0), (8, 3), (7, 6), (12, 2), (1, 0)]  # max_size, keep

# ---- staging -------------------------------------------------------------------------------


def test_staging_shows_the_committed_rows_then_those_staged_before_then_the_new():
    cache, truth = filled(n=3)
    first, second = random_rows(2, 100), random_rows(4, 101)
    stage(cache, first)
    seen = by_position(mx.stack(stage(cache, second)))
    expected = [*truth.rows.values(), *by_position(first), *by_position(second)]
    np.testing.assert_array_equal(seen, expected)


def test_a_layer_sees_its_own_rows_and_keys_are_not_values():
    cache = Cache(LAYERS)
    rows = random_rows(2, 0)
    for layer in range(LAYERS):
        keys, values = cache.stage(layer, *rows[layer])
        np.testing.assert_array_equal(keys, rows[layer, 0])
        np.testing.assert_array_equal(values, rows[layer, 1])


def test_staged_rows_are_not_committed():
    cache, truth = filled(n=3)
    stage(cache, random_rows(5, 100))
    assert (cache.offset, cache.num_committed, cache.num_staged) == (3, 3, 5)
    cache.rollback()
    assert_same(content(cache), truth.rows)


@pytest.mark.parametrize("dtype", [mx.float32, mx.float16, mx.bfloat16])
def test_rows_keep_their_dtype_and_shape(dtype):
    cache = Cache(1)
    keys = mx.ones((1, 5, 3, 16), dtype)
    seen_keys, seen_values = cache.stage(0, keys, 2 * keys[..., :8])
    assert (seen_keys.dtype, seen_values.dtype) == (dtype, dtype)
    assert (seen_keys.shape, seen_values.shape) == ((1, 5, 3, 16), (1, 5, 3, 8))


# ---- commit and rollback -------------------------------------------------------------------


@each_value(num_before=[0, 5, 7, 8, 9, 30], shape=SHAPES)
def test_commits_any_branch(num_before, shape):
    for branch in ([0], [0, 1, 2], [0, 3], [2, 4, 5], [0, 1, 4, 6, 7]):
        cache, truth = filled(*shape, n=num_before)
        rows = random_rows(8, 100)
        stage(cache, rows)
        cache.commit(branch)
        truth.append([by_position(rows)[index] for index in branch])
        assert cache.offset == num_before + len(branch)
        assert_same(content(cache), truth.rows)


@each_value(num_before=[0, 7, 8, 9, 30], shape=SHAPES)
def test_rollback_leaves_what_was_committed(num_before, shape):
    cache, truth = filled(*shape, n=num_before)
    stage(cache, random_rows(20, 100))
    cache.rollback()
    assert (cache.offset, cache.num_staged) == (num_before, 0)
    assert_same(content(cache), truth.rows) if num_before else None


@pytest.mark.parametrize(("max_size", "keep"), SHAPES)
def test_an_empty_commit_is_a_rollback(max_size, keep):
    cache, truth = filled(max_size, keep, n=20)
    stage(cache, random_rows(3, 100))
    cache.commit([])
    assert (cache.offset, cache.num_staged) == (20, 0)
    assert_same(content(cache), truth.rows)


@each_value(length=[6, 12, 13, 50], shape=SHAPES)
def test_a_chunk_larger_than_the_ring_leaves_its_end(length, shape):
    cache, truth = filled(*shape, n=4)
    rows = random_rows(length, 100)
    stage(cache, rows)
    cache.commit(range(length))
    truth.append(by_position(rows))
    assert_same(content(cache), truth.rows)


def test_a_commit_takes_rows_staged_by_several_passes():
    cache, truth = filled(8, 2, n=11)
    passes = [random_rows(1, 100), random_rows(3, 101), random_rows(1, 102)]
    for rows in passes:
        stage(cache, rows)
    cache.commit([0, 1, 3, 4])
    staged = [row for rows in passes for row in by_position(rows)]
    truth.append([staged[index] for index in (0, 1, 3, 4)])
    assert_same(content(cache), truth.rows)


rounds = st.lists(
    st.tuples(
        st.integers(1, 12),  # rows in the first pass
        st.integers(0, 5),  # rows in a second pass
        st.lists(st.booleans(), min_size=17, max_size=17),  # which of them stay
    ),
    max_size=12,
)


@EXAMPLES
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


def test_reset_forgets_everything_and_releases_the_memory():
    cache, _ = filled(8, 2, n=12)
    stage(cache, random_rows(3, 100))
    cache.reset()
    assert (cache.offset, cache.num_staged, cache.nbytes) == (0, 0, 0)
    rows = random_rows(2, 101)
    stage(cache, rows)
    cache.commit([0, 1])
    assert_same(content(cache), dict(enumerate(by_position(rows))))


def test_an_empty_copy_is_of_the_same_kind_and_apart():
    packing = Quantization.for_head_dim(8, SIZE)
    cache, _ = filled(8, 2, n=12, quantization=packing)
    other = cache.empty_like()
    assert (other.max_size, other.keep, other.quantization) == (8, 2, packing)
    assert (other.offset, other.nbytes, cache.offset) == (0, 0, 12)


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
