"""Half precision thousands of tokens into a text: as near to float64 as others come in it.

The truth is float64 on the rounded weights; what Hugging Face and MLX-LM say in the half precision
itself shows how far from it one may be, row by row.
"""

import dataclasses
from functools import cache

import mlx.core as mx
import mlx_lm.models.llama
import numpy as np
import pytest
from mlx.utils import tree_flatten
from mlx_lm.models.cache import make_prompt_cache

from mlxspec.decoder.decoder import PREFILL_CHUNK
from tests.support.halves import assert_as_near, errors
from tests.support.long_golden import NUM_ROWS, load_long_golden, read_to_the_end, tree_says


@cache
def our_errors(name):
    """Of the last rows of the text, then of the nodes of the tree."""
    golden = load_long_golden(name)
    decoder = golden.decoder()
    said = np.concatenate([read_to_the_end(decoder, golden.text), tree_says(decoder)])
    return errors(said, golden.said)


@pytest.mark.parametrize("name", ["near_bfloat16", "near_float16", "far_bfloat16_sinks"])
def test_is_as_near_to_the_truth_as_hugging_face(name):
    golden = load_long_golden(name)
    assert_as_near(our_errors(name), errors(golden.half, golden.said))


def test_is_as_near_to_the_truth_as_mlx_lm():
    golden = load_long_golden("near_bfloat16")
    model = golden.model()
    args = mlx_lm.models.llama.ModelArgs.from_dict(dataclasses.asdict(model.config))
    theirs = mlx_lm.models.llama.Model(args)
    theirs.load_weights(tree_flatten(model.parameters()), strict=True)
    cache, text = make_prompt_cache(theirs), golden.text
    for start in range(0, len(text), PREFILL_CHUNK):
        logits = theirs(mx.array([text[start : start + PREFILL_CHUNK]]), cache=cache)
    assert logits.dtype == golden.dtype
    their_rows = np.array(logits[0, -NUM_ROWS:].astype(mx.float32))
    our_rows = our_errors("near_bfloat16")[:NUM_ROWS]
    assert_as_near(our_rows, errors(their_rows, golden.rows))
