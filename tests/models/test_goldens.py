"""The models against logits that Hugging Face computed on the same weights in float32."""

import mlx.core as mx
import numpy as np
import pytest

from tests.support.golden import NAMES, load_golden
from tests.support.reference import ConcatCache, causal_masks, reference_logits

CONTIGUOUS = [name for name in NAMES if load_golden(name).positions[-1] == 23]


def masks_by_order(model, n_cached, n_new):
    """Masks of `n_new` tokens behind `n_cached`; windows count tokens, whatever the positions."""
    return causal_masks(model, range(n_cached, n_cached + n_new), range(n_cached + n_new))


def test_there_is_a_golden_for_every_variant():
    assert len(NAMES) == 16
    assert len(CONTIGUOUS) == 9


@pytest.mark.parametrize("name", NAMES)
def test_equals_hugging_face_with_one_position_per_token(name):
    golden = load_golden(name)
    model = golden.model()
    tokens, positions = mx.array([golden.tokens]), mx.array(golden.positions, mx.int32)
    masks = masks_by_order(model, 0, len(golden.tokens))
    hidden, _ = model.hidden_states(tokens, ConcatCache(), positions, masks)
    np.testing.assert_allclose(np.array(model.logits(hidden)[0]), golden.logits, atol=1e-4)


@pytest.mark.parametrize("name", NAMES)
def test_equals_hugging_face_when_the_text_comes_in_parts(name):
    golden = load_golden(name)
    model, cache, parts = golden.model(), ConcatCache(), []
    for start, stop in ((0, 9), (9, 10), (10, 11), (11, len(golden.tokens))):
        tokens = mx.array([golden.tokens[start:stop]])
        positions = mx.array(golden.positions[start:stop], mx.int32)
        masks = masks_by_order(model, start, stop - start)
        placed = positions if name not in CONTIGUOUS else start
        hidden, _ = model.hidden_states(tokens, cache, placed, masks)
        parts.append(np.array(model.logits(hidden)[0]))
    np.testing.assert_allclose(np.concatenate(parts), golden.logits, atol=1e-4)


@pytest.mark.parametrize("name", CONTIGUOUS)
def test_the_reference_in_numpy_equals_hugging_face(name):
    golden = load_golden(name)
    logits = reference_logits(golden.model(), golden.tokens)
    np.testing.assert_allclose(logits, golden.logits, atol=1e-4)
