"""Layers with a window evict rows: what they hold, against every row that was ever committed."""

import random

import mlx.core as mx
import numpy as np
import pytest

from mlxspec.device.packed import Quantization, unpacked
from mlxspec.errors import CacheError
from mlxspec.kv.batch import BatchCache
from mlxspec.kv.cache import Cache
from mlxspec.kv.storage import GROWTH
from mlxspec.kv.windows import Eviction

WINDOWS = (None, 6, 9, 6)
EVICTION = Eviction(slack=5, block=7)
PACKINGS = [None, Quantization(8, 32)]


def numbered(numbers):
    """(B, 1, L, 32) rows that say their numbers, and lose nothing when they are quantised."""
    shape = len(numbers), 1, len(numbers[0]), 32
    return mx.broadcast_to(mx.array(numbers, mx.float32)[:, None, :, None], shape)


def stage(cache, numbers):
    """Stage rows in all layers; return the (B, n) numbers that each layer shows."""
    rows = numbered(numbers)
    return [_numbers(*cache.stage(layer, rows, rows)) for layer in range(len(WINDOWS))]


def after(text, cache=None, **settings):
    """A cache with windows that has read a text in one piece."""
    cache = cache or Cache(4, **{"windows": WINDOWS, "eviction": EVICTION} | settings)
    if text:
        stage(cache, [list(text)])
    cache.commit(range(len(text)))
    return cache


def evicted(cache):
    return [cache.num_evicted(layer) for layer in range(4)]


def _numbers(keys, values):
    keys, values = np.array(unpacked(keys))[:, 0, :, 0], np.array(unpacked(values))[:, 0, :, 0]
    assert np.array_equal(keys, values)
    return keys.round(3)


def assert_shows(cache, text):
    """Every layer shows to a root what its window says, and holds few more rows than that."""
    assert cache.offset == len(text)
    for layer, window in enumerate(WINDOWS):
        shown = stage(cache, [[-1]])[layer][0]
        cache.rollback()
        wanted = text if window is None else text[max(0, len(text) - window + 1) :]
        found = shown[len(shown) - 1 - len(wanted) : -1].tolist()
        assert found == [float(number) for number in wanted]
        held = cache.offset - cache.num_evicted(layer)
        assert held == len(text) if window is None else held <= EVICTION.most_held(window)


@pytest.mark.parametrize("packing", PACKINGS)
def test_a_layer_shows_every_row_that_its_window_may_see_and_few_more(packing):
    rng, cache = random.Random(3), after([], quantization=packing)
    text = []
    for turn in range(90):
        if turn % 7 == 3 and cache.can_truncate(len(text) - 2):
            text = text[:-2]
            cache.truncate(len(text))
        tree = [rng.randrange(100) for _ in range(5)]
        stage(cache, [tree])
        path = sorted(rng.sample(range(5), rng.randrange(5)))
        cache.commit(path)
        text += [tree[node] for node in path]
        assert_shows(cache, text)
    assert len(text) > 100


def test_a_mask_over_all_rows_is_cut_to_those_that_a_layer_holds():
    cache = after(range(40))
    mask = mx.arange(43)[None] >= mx.array([[20], [30]])
    for layer, window in enumerate(WINDOWS):
        due = 0 if window is None else 40 - window - EVICTION.slack
        first = due - due % EVICTION.block
        assert cache.num_evicted(layer) == first
        assert cache.visible(layer, mask).tolist() == mask[:, first:].tolist()
    assert cache.visible(1, None) is None


def test_a_text_goes_back_as_far_as_the_slack_and_says_so_when_it_cannot():
    cache = after(range(40))
    assert [n for n in range(41) if cache.can_truncate(n)] == list(range(34, 41))
    assert cache.nearest(33) is None
    with pytest.raises(CacheError, match="the rows in front of a window are evicted"):
        cache.truncate(33)
    cache.truncate(35)
    assert_shows(cache, list(range(35)))
    short = after(range(17))  # one token less than makes a block: nothing is evicted
    assert all(short.can_truncate(n) for n in range(18))


def test_an_empty_cache_like_another_and_a_reset_one_evict_as_it_does():
    cache = after(range(40))
    for fresh in (cache.empty_like(), cache):
        fresh.reset()
        assert evicted(fresh) == [0, 0, 0, 0]
        assert evicted(after(range(18), fresh)) == [0, 7, 0, 7]


def test_a_rotating_cache_holds_the_same_positions_in_all_layers():
    cache = after(range(90), max_size=30)
    assert evicted(cache) == [0, 0, 0, 0]
    assert {len(shown[0]) for shown in stage(cache, [[1]])} == {31}


@pytest.mark.parametrize(
    ("settings", "can_be_cut"),
    [
        ({}, True),
        ({"windows": (None,) * 4}, True),
        ({"windows": WINDOWS}, False),
        ({"max_size": 30}, False),
        ({"num_states": 1}, False),
    ],
    ids=["full", "no window", "windows", "ring", "states"],
)
def test_only_rows_that_no_later_token_moves_or_drops_can_be_cut(settings, can_be_cut):
    assert Cache(4, **settings).can_be_cut == can_be_cut


def test_the_memory_of_evicted_rows_is_free():
    cache = after([])
    for start in range(0, 3000, 50):
        mx.eval(after(range(start, start + 50), cache).arrays)
    slots = [array.shape[2] for array in cache.row_arrays]
    for window, held in zip(WINDOWS * 2, slots, strict=True):
        assert held >= 3000 if window is None else held <= EVICTION.most_held(window) + GROWTH
    mx.synchronize()
    held, sizes = mx.get_active_memory(), sum(array.nbytes for array in cache.row_arrays)
    cache.reset()
    mx.clear_cache()
    assert held - mx.get_active_memory() < 1.2 * sizes


# ---- a batch -------------------------------------------------------------------------------


@pytest.mark.parametrize("packing", PACKINGS)
def test_sequences_of_a_batch_evict_apart_and_each_sees_its_own_rows(packing):
    rng = random.Random(4)
    one = after([], quantization=packing)
    cache = BatchCache(one, 3)
    texts = [[], [], []]

    def join(sequence, length):
        texts[sequence] = [rng.randrange(100) for _ in range(length)]
        cache.fill(sequence, after(texts[sequence], one.empty_like()))

    for sequence, length in enumerate((50, 3, 19)):
        join(sequence, length)
    for turn in range(60):
        if turn == 25:
            join(1, 31)
        trees = [[rng.randrange(100) for _ in range(4)] for _ in texts]
        longest = max(len(text) for text in texts) + 4
        for layer, window in enumerate(WINDOWS):
            ages = [[[len(t) + i - k for k in range(longest)] for i in range(4)] for t in texts]
            allowed = (np.array(ages) >= 0) & (np.array(ages) < (window or 10_000))
            own = cache.visible(layer, mx.array(allowed[:, None]))  # before any row is staged
            rows = numbered(trees)
            shown = _numbers(*cache.stage(layer, rows, rows))
            assert own.shape[-1] == shown.shape[-1]
            for b, text in enumerate(texts):
                for i in range(4):
                    wanted = [*text, *trees[b][: i + 1]][-(window or 10_000) :]
                    assert shown[b][np.array(own[b, 0, i])].tolist() == wanted
                if window is not None:
                    assert shown.shape[1] <= EVICTION.most_held(window) + 4
        paths = [sorted(rng.sample(range(4), rng.randrange(5))) for _ in texts]
        cache.commit(paths)
        for text, tree, path in zip(texts, trees, paths, strict=True):
            text += [tree[node] for node in path]
        if turn == 40:
            cache.keep([2, 0])
            texts = [texts[2], texts[0]]
    assert min(len(text) for text in texts) > 60


@pytest.mark.parametrize("packing", PACKINGS)
def test_a_text_that_leaves_a_batch_takes_its_rows_and_forgets_no_eviction(packing):
    one = after([], quantization=packing)
    cache, texts = BatchCache(one, 3), [list(range(n, n + n)) for n in (3, 41, 26)]
    for sequence, text in enumerate(texts):
        own = one.empty_like()
        for start in range(0, len(text), 20):
            after(text[start : start + 20], own)
        cache.fill(sequence, own)
    cache.keep([2, 1])
    for sequence, text in enumerate((texts[2], texts[1])):
        assert_shows(cache.take(sequence, one), text)
