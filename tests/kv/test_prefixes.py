"""Beginnings of texts: the longest one is found with its rows, within the bytes allowed."""

import mlx.core as mx
import numpy as np
import pytest

from mlxspec.kv.prefixes import PrefixCache
from mlxspec.kv.steady import CHUNK, Steady
from mlxspec.trace.difference import common_length

PER_TOKEN = 2 * 3 * 4 + 2 * 4  # bytes of the two planes below


def rows_of(tokens):
    """Two planes whose rows follow from all tokens up to theirs, as keys and values do."""
    sums = np.cumsum([hash((index, token)) % 97 for index, token in enumerate(tokens)])
    first = mx.array(np.tile(sums[None, None, :, None], (1, 2, 1, 3)), mx.float32)
    second = mx.array(np.tile(sums[None, None, :, None], (1, 2, 1, 1)), mx.float32)
    return lambda start, end: [first[:, :, start:end], second[:, :, start:end]]


def test_the_longest_beginning_is_found_with_its_rows():
    random = np.random.default_rng(2)
    cache, added = PrefixCache(1 << 20), []
    for _ in range(60):
        text = [int(token) for token in random.integers(0, 3, random.integers(1, 12))]
        found = cache.find(text)
        longest = max((common_length(text, other) for other in added), default=0)
        assert found.length == longest
        expected = rows_of(text)(0, longest)
        for plane, true in zip(found.planes, expected, strict=bool(longest)):
            assert plane[:, :, :longest].tolist() == true.tolist()
            assert plane.shape[2] > longest  # the next row has room: no second copy
        cache.add(text, rows_of(text))
        added.append(text)


def test_what_texts_share_is_held_once():
    cache = PrefixCache(1 << 20)
    for text in ([1, 2, 3, 4], [1, 2, 3, 5, 6], [1, 2], [9]):
        cache.add(text, rows_of(text))
    assert cache.nbytes == PER_TOKEN * len([1, 2, 3, 4, 5, 6, 9])


@pytest.mark.parametrize("most", [(PER_TOKEN * 6,), (1 << 20, 6)], ids=["bytes", "tokens"])
def test_the_text_asked_for_longest_ago_goes_first(most):
    cache = PrefixCache(*most)
    for text in ([1, 2, 3], [1, 2, 4], [7, 8]):
        cache.add(text, rows_of(text))
    cache.find([1, 2, 3])
    cache.add([5], rows_of([5]))
    assert [cache.find(text).length for text in ([1, 2, 3], [1, 2, 4], [7, 8], [5])] == [3, 2, 2, 1]
    assert cache.nbytes == PER_TOKEN * cache.num_tokens <= PER_TOKEN * 6


def test_a_text_larger_than_all_is_not_kept_and_a_found_one_outlives_its_end():
    cache = PrefixCache(PER_TOKEN * 3)
    cache.add([1, 2, 3], rows_of([1, 2, 3]))
    found = cache.find([1, 2, 3])
    cache.add([4] * 5, rows_of([4] * 5))
    assert cache.nbytes <= cache.max_bytes
    assert cache.find([4] * 5).length == 0
    assert found.planes[0][:, :, :3].tolist() == rows_of([1, 2, 3])(0, 3)[0].tolist()


def test_a_beginning_that_two_texts_share_keeps_no_rows_of_the_first_one_but_its_own():
    def rows(start, end):
        return [mx.zeros((1, 2, 4000, 64))[:, :, start:end]]

    mx.clear_cache()
    before = mx.get_active_memory()
    cache = PrefixCache(1 << 30)
    cache.add([1] * 1999 + [2] * 2000, rows)
    cache.add([1] * 1999 + [3], rows)
    mx.synchronize()
    assert mx.get_active_memory() - before < 1.2 * cache.nbytes


def test_rows_of_steady_forwards_are_shared_in_whole_chunks_and_serve_no_other_forwards():
    cache, steady = PrefixCache(1 << 20), Steady(8, pads_keys=True)
    text = list(range(2 * CHUNK))
    other = [*text[: CHUNK + 50], *text[:78]]
    cache.add(text, rows_of(text), steady)
    assert [cache.find(text, kind).length for kind in (None, Steady(8, pads_keys=False))] == [0, 0]
    assert [cache.find(one, steady).length for one in (text, text[:-1], other)] == [256, 128, 128]
    cache.add(other, rows_of(other), steady)
    assert cache.nbytes == PER_TOKEN * 3 * CHUNK
    for one in (text, other):
        found = cache.find(one, steady)
        assert found.planes[0][:, :, :256].tolist() == rows_of(one)(0, 256)[0].tolist()


def test_refuses_less_than_no_bytes():
    with pytest.raises(ValueError, match="max_bytes must be 0 or more; got -1"):
        PrefixCache(-1)
