"""Texts, trees, batches, captured states and quantised weights through the one forward path.

The truth is what Hugging Face computed on the same weights in float32.
"""

from itertools import pairwise

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest

from mlxspec.device import backend
from mlxspec.models import build_model
from tests.support.golden import NAMES, load_golden
from tests.support.pairwise import each_value
from tests.support.reference import ConcatCache, causal_masks, path_to, reference_logits, tree_masks

CONTIGUOUS = [name for name in NAMES if load_golden(name).positions[-1] == 23]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("cuts", [(), (9, 10, 11)], ids=["whole", "in parts"])
def test_a_text_has_the_logits_of_hugging_face_whole_or_in_parts(name, cuts):
    golden = load_golden(name)
    model, cache, parts = golden.model(), ConcatCache(), []
    for start, stop in pairwise([0, *cuts, len(golden.tokens)]):
        masks = causal_masks(model, range(start, stop), range(stop))  # windows count tokens
        positions = mx.array(golden.positions[start:stop], mx.int32)
        placed = start if cuts and name in CONTIGUOUS else positions
        tokens = mx.array([golden.tokens[start:stop]])
        hidden, _ = model.hidden_states(tokens, cache, placed, masks)
        parts.append(np.array(model.logits(hidden)[0]))
    np.testing.assert_allclose(np.concatenate(parts), golden.logits, atol=1e-4)


@pytest.mark.parametrize("name", CONTIGUOUS)
def test_the_reference_in_numpy_equals_hugging_face(name):
    golden = load_golden(name)
    logits = reference_logits(golden.model(), golden.tokens)
    np.testing.assert_allclose(logits, golden.logits, atol=1e-4)


def run(model, tokens, capture=()):
    """Final hidden states of a prompt, and the captured ones."""
    indices = range(tokens.shape[1])
    masks = causal_masks(model, indices, indices)
    return model.hidden_states(tokens, ConcatCache(), 0, masks, capture=capture)


@each_value(name=CONTIGUOUS, is_cpu=[True, False])
def test_each_node_of_a_tree_gets_the_logits_of_its_path(name, is_cpu, monkeypatch):
    monkeypatch.setattr(backend, "is_cpu", lambda: is_cpu)
    golden = load_golden(name)
    model, cache = golden.model(), ConcatCache()
    prompt = golden.tokens[:11]
    tokens, parents = [5, 9, 33, 9, 60, 2, 7, 41], [-1, 0, 0, 1, 2, 2, 4, 6]
    model.hidden_states(mx.array([prompt]), cache, 0, causal_masks(model, range(11), range(11)))
    positions = mx.array([10 + len(path_to(parents, node)) for node in range(8)], mx.int32)
    masks = tree_masks(model, 11, parents)
    hidden, _ = model.hidden_states(mx.array([tokens]), cache, positions, masks)
    logits = np.array(model.logits(hidden)[0])
    for node in range(8):
        line = prompt + [tokens[other] for other in path_to(parents, node)]
        expected = reference_logits(model, line)[-1]
        np.testing.assert_allclose(logits[node], expected, atol=1e-4)


def test_a_pass_leaves_the_rows_of_an_earlier_cache_as_they_were():
    golden = load_golden("llama_mha")
    model, cache = golden.model(), ConcatCache()
    model.hidden_states(mx.array([golden.tokens[:6]]), cache, 0, {None: "causal"})
    branches = []
    for token in (3, 4):
        hidden, _ = model.hidden_states(mx.array([[token]]), cache.copy(), 6, {None: None})
        branches.append(np.array(model.logits(hidden)[0, 0]))
    for token, logits in zip((3, 4), branches, strict=True):
        expected = reference_logits(model, [*golden.tokens[:6], token])[-1]
        np.testing.assert_allclose(logits, expected, atol=1e-4)


@pytest.mark.parametrize("positions", [0, mx.arange(12, dtype=mx.int32)])
def test_sequences_of_a_batch_do_not_mix(positions):
    golden = load_golden("llama_gqa_tied")
    model = golden.model()
    tokens = mx.array([golden.tokens[:12], golden.tokens[12:]])
    hidden, _ = model.hidden_states(tokens, ConcatCache(), positions, {None: "causal"})
    for row, line in enumerate((golden.tokens[:12], golden.tokens[12:])):
        expected = reference_logits(model, line)
        np.testing.assert_allclose(np.array(model.logits(hidden)[row]), expected, atol=1e-4)


def test_the_state_behind_the_last_layer_is_not_normalised():
    golden = load_golden("llama_mha")
    model = golden.model()
    hidden, (before, embedded) = run(model, mx.array([golden.tokens]), capture=(2, 0))
    before, weight = np.array(before), np.array(golden.weights["model.norm.weight"])
    root = np.sqrt((before**2).mean(axis=-1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(np.array(hidden), before / root * weight, atol=1e-5)
    table = np.array(golden.weights["model.embed_tokens.weight"])
    np.testing.assert_array_equal(np.array(embedded[0]), table[golden.tokens])


@pytest.mark.parametrize("layer", [-1, 3])
def test_refuses_to_capture_a_layer_that_is_not_there(layer):
    model = load_golden("llama_mha").model()
    with pytest.raises(ValueError, match=f"capture is .*{layer}.*; allowed are 0 to 2"):
        run(model, mx.array([[1, 2]]), capture=(layer,))


@pytest.mark.parametrize("name", ["llama_gqa_tied", "qwen2_untied"])
def test_quantised_weights_give_the_logits_of_their_dequantised_values(name):
    golden = load_golden(name)
    model = golden.model()
    nn.quantize(model, group_size=32, bits=8)
    plain = build_model(golden.config)
    plain.load_weights(list(golden.weights.items()))
    plain.load_weights(
        [
            (f"{path}.weight", mx.dequantize(m.weight, m.scales, m.biases, m.group_size, m.bits))
            for path, m in model.named_modules()
            if hasattr(m, "scales")
        ],
        strict=False,
    )
    hidden, _ = run(model, mx.array([golden.tokens]))
    expected = reference_logits(plain, golden.tokens)
    np.testing.assert_allclose(np.array(model.logits(hidden)[0]), expected, atol=1e-3)
