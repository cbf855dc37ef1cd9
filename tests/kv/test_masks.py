"""Who sees whom: masks written out by hand, and what a model says under them.

A node of a tree must say what the text that leads to it says when it is read from nothing, in
NumPy, with the evictions of plain decoding.
"""

import functools

import mlx.core as mx
import numpy as np
import pytest

from mlxspec.decoder.decoder import Decoder
from mlxspec.drafts.tree import DraftTree
from mlxspec.kv.cache import Cache
from mlxspec.kv.masks import chain_masks, last_row_masks, tree_masks
from tests.support.dict_cache import filled, random_rows, stage
from tests.support.pairwise import each_value
from tests.support.reference import reference_logits
from tests.support.tiny import tiny_model

# 0 -> (1 -> (3, 4), 2): the drawing of tree.py.
TREE = DraftTree.from_lists([10, 11, 12, 13, 14], [-1, 0, 0, 1, 1])
CHAIN_BELOW_A_FORK = DraftTree.from_lists([0, 1, 2, 3, 4], [-1, 0, 0, 1, 3])


def masks_of(tree, cache, windows=(None,)):
    return tree_masks(cache, cache.offset + tree.depths, tree.ancestors, windows)


def drawn(mask):
    """The mask as one word of 1 and . per row."""
    return ["".join("1" if seen else "." for seen in row) for row in np.array(mask)]


@pytest.mark.parametrize("n", [0, 2])
def test_a_node_sees_the_past_its_ancestors_and_itself(n):
    cache, _ = filled(n=n)
    masks = masks_of(TREE, cache)
    assert list(masks) == [None]
    assert masks[None].dtype == mx.bool_
    below = ["1....", "11...", "1.1..", "11.1.", "11..1"]
    assert drawn(masks[None]) == ["1" * n + row for row in below]


def test_a_deep_node_does_not_see_what_a_ring_will_have_evicted_by_then():
    cache, _ = filled(4, 1, n=8)  # slots hold positions 0 7 5 6; three tokens beside the sink
    assert drawn(masks_of(CHAIN_BELOW_A_FORK, cache)[None]) == [
        "11.1" + "1....",  # position 8 sees 0, 6, 7
        "11.." + "11...",  # position 9 sees 0, 7, 8
        "11.." + "1.1..",
        "1..." + "11.1.",  # position 10 sees 0, 8, 9
        "1..." + ".1.11",  # position 11 sees 0, 9, 10
    ]


def test_nothing_is_evicted_before_the_ring_is_full():
    cache, _ = filled(8, 1, n=3)
    below = ["1....", "11...", "1.1..", "11.1.", "11.11"]
    assert drawn(masks_of(CHAIN_BELOW_A_FORK, cache)[None]) == ["111" + row for row in below]


def test_a_window_counts_the_node_itself():
    cache, _ = filled(n=3)
    masks = masks_of(CHAIN_BELOW_A_FORK, cache, (None, 2, 3))
    assert drawn(masks[None]) == ["1111....", "11111...", "1111.1..", "11111.1.", "11111.11"]
    assert drawn(masks[3]) == [".111....", "..111...", "..11.1..", "...11.1.", "....1.11"]
    assert drawn(masks[2]) == ["..11....", "...11...", "...1.1..", "....1.1.", "......11"]


def test_a_window_hides_the_sink_and_a_ring_hides_what_a_window_would_show():
    cache, _ = filled(4, 1, n=8)  # slots hold positions 0 7 5 6
    masks = masks_of(DraftTree.from_lists([0, 1], [-1, 0]), cache, (2, 50))
    assert drawn(masks[2]) == [".1..1.", "....11"]
    assert drawn(masks[50]) == ["11.11.", "11..11"]


def test_rows_in_a_line_need_no_array_without_windows():
    cache, _ = filled(n=3)
    assert chain_masks(cache, 1, (None,)) == {None: None}
    assert chain_masks(cache, 4, (None,)) == {None: "causal"}


def test_rows_in_a_line_behind_staged_ones_see_those_and_what_the_ring_still_holds():
    cache, _ = filled(4, 1, n=5)  # slots hold positions 0 4 2 3
    stage(cache, random_rows(2, 100))
    assert drawn(chain_masks(cache, 2, (None,))[None]) == [
        "1..." + "111.",  # position 7 sees 0, 5, 6
        "1..." + ".111",  # position 8 sees 0, 6, 7
    ]


def test_a_prompt_longer_than_the_ring_is_read_as_if_token_by_token():
    cache, _ = filled(4, 2, n=0)
    rows = ["1......", "11.....", "111....", "1111...", "11.11..", "11..11.", "11...11"]
    assert drawn(chain_masks(cache, 7, (None,))[None]) == rows


@pytest.mark.parametrize(
    ("ring", "n", "window", "expected"),
    [
        ((None, 0), 4, None, "111.1"),
        ((None, 0), 4, 3, ".11.1"),
        ((8, 1), 4, None, "111.1"),
        ((4, 1), 4, None, "111.1"),  # position 3 sees 0, 1, 2
        ((4, 1), 8, None, "1.111"),  # slots 0 7 5 6: position 7 sees 0, 5, 6
    ],
)
def test_the_last_token_read_again_does_not_see_its_own_committed_row(ring, n, window, expected):
    cache, _ = filled(*ring, n=n)
    assert drawn(last_row_masks(cache, (None, window))[window]) == [expected]


# ---- a model under these masks -------------------------------------------------------------

MODELS = {
    "llama": {"family": "llama"},
    "qwen2": {"family": "qwen2"},
    "mistral, window 5": {"family": "mistral", "sliding_window": 5},
    "qwen2, window 5 in the upper layer": {
        "family": "qwen2",
        "use_sliding_window": True,
        "sliding_window": 5,
        "max_window_layers": 1,
    },
}
RINGS = [(None, 0), (64, 4), (12, 2), (7, 0), (1, 0)]
TEXT = [int(token) for token in np.random.default_rng(5).integers(0, 24, 50)]


@functools.cache
def model_of(name):
    return tiny_model(num_attention_heads=4, num_key_value_heads=2, **MODELS[name])


@functools.cache
def plain_logits(name, tokens, max_size, keep):
    """(L, V) logits of plain decoding with a rotating cache, from nothing."""
    age = np.arange(len(tokens))[:, None] - np.arange(len(tokens))[None]
    visible = age >= 0
    if max_size is not None:
        visible &= (age < max_size - keep) | (np.arange(len(tokens)) < keep)
    return reference_logits(model_of(name), tokens, visible)


def make_decoder(name, max_size, keep):
    model = model_of(name)
    n_layers = model.config.num_hidden_layers
    return Decoder(model, Cache(n_layers, max_size=max_size, keep=keep))


def assert_close(logits, expected):
    np.testing.assert_allclose(np.array(logits), expected, atol=2e-4)


@each_value(chunk=[1, 3, 7, 50], name=MODELS, ring=RINGS)
def test_a_prompt_read_in_any_chunks_says_the_same(name, ring, chunk):
    decoder = make_decoder(name, *ring)
    said = []
    for start in range(0, len(TEXT), chunk):
        tokens = TEXT[start : start + chunk]
        said.append(decoder.logits(decoder.extend_chain(mx.array(tokens))))
        decoder.commit_chain(tokens)
    assert_close(mx.concatenate(said), plain_logits(name, tuple(TEXT), *ring))


@each_value(n_read=[0, 11, 40], name=MODELS, ring=RINGS)
def test_a_node_says_what_its_path_says_read_from_nothing(name, ring, n_read):
    decoder = make_decoder(name, *ring)
    decoder.observe(TEXT[:n_read])
    parents = [-1, 0, 0, 1, 1, 3, 5, 6, 2]
    tokens = [3, 7, 8, 7, 2, 19, 0, 7, 7]
    said = decoder.tree_logits(DraftTree.from_lists(tokens, parents))
    paths = []
    for node, parent in enumerate(parents):
        paths.append(([] if parent < 0 else paths[parent]) + [tokens[node]])
        text = (*TEXT[:n_read], *paths[node])
        assert_close(said[node], plain_logits(name, text, *ring)[-1])
