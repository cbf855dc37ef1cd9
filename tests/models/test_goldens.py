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


@pytest.mark.parametrize("name", CONTIGUOUS)
def test_equals_hugging_face_when_the_prompt_comes_in_two_chunks(name):
    golden = load_golden(name)
    model, cache = golden.model(), ConcatCache()
    chunks = []
    for start, stop in ((0, 9), (9, 24)):
        tokens = mx.array([golden.tokens[start:stop]])
        masks = masks_by_order(model, start, stop - start)
        hidden, _ = model.hidden_states(tokens, cache, start, masks)
        chunks.append(np.array(model.logits(hidden)[0]))
    np.testing.assert_allclose(np.concatenate(chunks), golden.logits, atol=1e-4)


@pytest.mark.parametrize("name", NAMES)
def test_equals_hugging_face_token_by_token(name):
    golden = load_golden(name)
    model, cache = golden.model(), ConcatCache()
    for index, (token, position) in enumerate(zip(golden.tokens, golden.positions, strict=True)):
        masks = masks_by_order(model, index, 1)
        hidden, _ = model.hidden_states(mx.array([[token]]), cache, position, masks)
        logits = np.array(model.logits(hidden)[0, 0])
        np.testing.assert_allclose(logits, golden.logits[index], atol=1e-4)


@pytest.mark.parametrize("name", CONTIGUOUS)
def test_the_reference_in_numpy_equals_hugging_face(name):
    golden = load_golden(name)
    logits = reference_logits(golden.model(), golden.tokens)
    np.testing.assert_allclose(logits, golden.logits, atol=1e-4)
