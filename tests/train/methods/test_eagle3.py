"""EAGLE-3 training has, at every depth, exactly the inputs of drafting."""

import mlx.core as mx
import numpy as np
import pytest
from mlx import nn

from mlxspec.kv.cache import Cache
from mlxspec.kv.masks import chain_masks
from mlxspec.train.methods.eagle3 import Eagle3Objective
from tests.support.tiny import tiny_model
from tests.support.training import LAYERS, features, mean_chain, with_gap

DEPTHS = 3


@pytest.fixture(params=["llama", "qwen2"])
def model(request):
    return tiny_model(request.param, num_key_value_heads=2, num_attention_heads=4, head_dim=16)


@pytest.fixture
def objective(model):
    ids = mx.array([0, 2, 3, 5, 7, 8, 11, 12, 17, 20], mx.int32)
    objective = Eagle3Objective(model, ids, LAYERS, depths=DEPTHS)
    for name in ("q_proj", "k_proj", "v_proj"):  # half of it begins as zeros
        weight = objective.network.layer.self_attn[name].weight
        noise = mx.random.normal(weight.shape, key=mx.random.key(3))
        objective.network.layer.self_attn[name].weight = weight + 0.2 * noise
    return objective


def drafted(objective, model, given, place):
    """What the head reads at each depth of a chain that begins at a place, by way of a cache."""
    network, cache = objective.network, Cache(1)
    tokens = mx.array(given.tokens)
    taps = mx.concatenate([given.entering[layer] for layer in LAYERS], axis=-1)
    g = network.fuse(taps[: place + 1])[None]
    embeddings = model.embed(tokens[1 : place + 2])[None]
    read = []
    for depth in range(DEPTHS):
        n = g.shape[1]
        masks = chain_masks(cache, n, (None,))
        normed, output = network(embeddings, g, cache, cache.offset, masks)
        cache.commit(range(n))
        read.append(np.array(normed[0, -1]))
        g = output[:, -1:]
        next_token = tokens[place + 2 + depth : place + 3 + depth]
        embeddings = model.embed(next_token)[None]
    return read


@pytest.mark.parametrize("place", [0, 1, 6, 12])
def test_each_depth_of_training_is_a_step_of_drafting(objective, model, place):
    given = features(model, length=18)
    unrolled = objective._unroll(given)
    for depth, expected in enumerate(drafted(objective, model, given, place)):
        got = np.array(unrolled[depth][0, place + depth])
        np.testing.assert_allclose(got, expected, rtol=2e-4, atol=2e-4)


def test_the_loss_is_that_of_the_formula(objective, model):
    given = features(model, length=12, prompt=4)
    ids = np.array(objective.network.target_ids)
    logits = np.array(model.logits(given.final)[:, mx.array(ids)])
    final = np.array(given.final)
    expected, weight = 0.0, 1.0
    scale = np.square(final[3:11]).mean()
    for depth, states in enumerate(objective._unroll(given)):
        for place in range(max(depth, 2), 10):
            row = np.array(states[0, place])
            own = row @ np.array(objective._head.weight).T
            probs = np.exp(logits[place + 1]) / np.exp(logits[place + 1]).sum()
            entropy = -(probs * (own - np.log(np.exp(own).sum()))).sum()
            distance = np.square(row - final[place + 1]).mean() / scale
            expected += weight * (entropy + 0.2 * distance)
        weight *= 0.8
    np.testing.assert_allclose(objective.loss(given).item(), expected, rtol=1e-4)


def test_a_fresh_head_does_what_the_targets_last_layer_does(model):
    objective = Eagle3Objective(model, mx.arange(24), LAYERS[:2], depths=1)
    given = features(model, length=12)
    expected = np.array(given.final)
    np.testing.assert_allclose(objective._unroll(given)[0][0], expected[:-1], rtol=1e-3, atol=1e-3)


def test_no_chain_leaves_its_answer(objective, model):
    given = with_gap(features(model, length=90, prompt=4), 40, 50)
    ids, head = np.array(objective.network.target_ids), np.array(objective._head.weight)
    hits = []
    for states in objective._unroll(given):
        drafted = ids[np.argmax(np.array(states[0]) @ head.T, axis=1)]
        hits.append(drafted[:-1] == given.tokens[2:])
    places = [*range(2, 38), *range(48, 88)]
    expected = mean_chain(hits, places)
    assert expected > 1
    assert objective.evaluate([given])["mean_acceptance_length"] == pytest.approx(expected)


def test_a_quantised_target_is_a_target_like_any_other():
    packed = tiny_model(head_dim=16)
    nn.quantize(packed, 32, 8)
    objective = Eagle3Objective(packed, mx.arange(24), LAYERS, depths=2)
    given = features(packed, length=12)
    rows = objective._unroll(given)[0][0]
    expected = packed.logits(rows)
    np.testing.assert_allclose(rows @ objective._head.weight.T, expected, rtol=1e-3, atol=1e-3)
    assert np.isfinite(objective.loss(given).item())
