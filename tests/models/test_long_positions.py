"""Thousands of tokens into a text, rows and trees say what Hugging Face says there.

The text is read in chunks, its last rows are looked at, then a tree that reaches over the border of
4,096 or 32,768 tokens, then what follows a branch that was committed. Far into a text only a ring
is quick enough to be filled in a test, but for one small model; its kept tokens stand as far back
as any row of a full cache.
"""

import mlx.core as mx
import numpy as np
import pytest

from mlxspec.drafts.tree import DraftTree
from tests.support.long_golden import NUM_ROWS, TREE, load_long_golden, read_to_the_end, tree_says
from tests.support.reference import tree_masks
from tests.support.truth import QuantisedConcatCache

BRANCH, BEHIND = [0, 1, 3, 6], [7, 8, 9, 11]  # nodes of one path; the first do not lie in a row
# Angles are float32, and Hugging Face's frequencies too: a rounding of one turns a row by 2e-4 at
# 4,096 and by 2e-3 at 32,768. A quantised value may fall into the next bucket.
ATOL = {"near": 1e-3, "far": 5e-3, "quantised": 0.02}
FULL = [
    "near_plain",
    "near_linear",
    "near_llama3",
    "near_yarn",
    "near_mistral_window",
    "near_qwen2_upper_window",
    "far_llama3",
]
RINGS = {  # a ring as long as the windows, if the golden has none of its own
    "far_plain_sinks": {},
    "far_linear_sinks": {},
    "far_llama3_sinks": {},
    "far_yarn_sinks": {},
    "near_mistral_window": {"max_size": 48},
    "far_mistral_window": {"max_size": 48},
    "near_qwen2_windows": {"max_size": 5},
    "far_qwen2_windows": {"max_size": 5},
}


def assert_close(logits, expected, name):
    np.testing.assert_allclose(logits, expected, atol=ATOL[name.split("_")[0]], rtol=0)


def say_what_hugging_face_says(name, **ring):
    """Compare a text, a tree and a committed branch; return the decoder, the branch committed."""
    golden = load_long_golden(name)
    decoder = golden.decoder(**ring)
    assert_close(read_to_the_end(decoder, golden.text), golden.rows, name)
    assert_close(tree_says(decoder), golden.nodes, name)
    decoder.forward_tree(TREE)
    decoder.commit(BRANCH)
    rest = DraftTree.chain(TREE.tokens[mx.array(BEHIND)])
    assert_close(decoder.tree_logits(rest), golden.nodes[BEHIND], name)
    return decoder


@pytest.mark.parametrize("name", RINGS)
def test_a_ring_says_what_hugging_face_says(name):
    cache = say_what_hugging_face_says(name, **RINGS[name]).cache
    assert cache.num_committed == cache.max_size < cache.offset


@pytest.mark.parametrize("name", FULL)
def test_a_full_cache_says_what_hugging_face_says(name):
    golden = load_long_golden(name)
    decoder = say_what_hugging_face_says(name)
    assert len(decoder) == len(golden.text) + len(BRANCH)
    decoder.rollback_to(len(golden.text))
    assert_close(decoder.next_logits(), golden.rows[-1], name)
    assert_close(tree_says(decoder), golden.nodes, name)


@pytest.mark.parametrize("bits", [8, 4])
def test_a_quantised_cache_says_what_rows_say_that_were_quantised_one_by_one(bits):
    golden = load_long_golden("near_plain")
    text, decoder, plain = golden.text, golden.decoder(bits), QuantisedConcatCache(bits)
    model, length = decoder.model, len(text)
    for start in range(0, length, 512):
        chunk = mx.array([text[start : start + 512]])
        hidden, _ = model.hidden_states(chunk, plain, start, {None: "causal"})
        mx.eval(hidden, plain.rows)
    expected = np.array(model.logits(hidden[0, -NUM_ROWS:]))
    assert np.abs(expected - golden.rows).max() > 0.05  # or nothing was quantised
    assert_close(read_to_the_end(decoder, text), expected, "quantised")
    masks = tree_masks(model, length, TREE.parents.tolist())
    hidden, _ = model.hidden_states(TREE.tokens[None], plain, length + TREE.depths, masks)
    assert_close(tree_says(decoder), np.array(model.logits(hidden[0])), "quantised")
