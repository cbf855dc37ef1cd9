"""Training Medusa heads: losses and figures by the formula, and that heads learn at all."""

import mlx.core as mx
import mlx.optimizers as optim
import numpy as np
import pytest
from mlx import nn
from mlx.utils import tree_map_with_path

from mlxspec.decoder.decoder import Decoder
from mlxspec.decoder.hidden import HiddenStates
from mlxspec.device.core_split import left_to_blas
from mlxspec.drafters.medusa import MedusaDrafter, MedusaHeads
from mlxspec.train.data.corpus import Conversation
from mlxspec.train.features import compute_features
from mlxspec.train.methods.medusa import NUM_RANKS, MedusaObjective
from tests.support.reference import reference_logits
from tests.support.tiny import tiny_model
from tests.support.truth import Target

MODEL = tiny_model()
IDS = (1, 2, 3, 5, 7, 8, 11, 12, 13, 17, 18, 20, 21, 23)
DRAW = np.random.default_rng(2)
TOKENS = DRAW.integers(0, 24, 60).astype(np.int32)
MASK = np.zeros(60, np.uint8)
MASK[[*range(8, 20), 30, 31, *range(40, 58)]] = 1  # three answers, one of two tokens
MASK[44:49] = 2  # sampled


def features_of(tokens, mask, model=MODEL):
    return compute_features(model, Conversation(tokens, mask, False), ())


def objective_of(seed=None, model=MODEL, ids=IDS, **settings):
    """An objective, its weights drawn at random if there is a seed."""
    objective = MedusaObjective(model, mx.array(list(ids), mx.int32), **settings)
    if seed is not None:
        draw = np.random.default_rng(seed)
        objective.network.update(
            tree_map_with_path(
                lambda _, array: mx.array(draw.normal(size=array.shape) * 0.2, mx.float32),
                objective.network.parameters(),
            )
        )
    return objective


def numpy_states(network, hidden):
    """(H, n, D) what each head gives to the output layer, from the formula."""
    states = []
    for head in network.heads:
        x = np.array(hidden, np.float64)
        for block in head.blocks:
            y = x @ np.array(block.weight, np.float64).T + np.array(block.bias, np.float64)
            x = x + y / (1 + np.exp(-y))
        states.append(x)
    return np.stack(states)


def log_softmax(logits):
    shifted = logits - logits.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


@pytest.mark.parametrize("num_blocks", [1, 2])
def test_the_loss_is_the_cross_entropy_of_each_head_at_its_distance(num_blocks):
    objective = objective_of(seed=3, num_heads=3, num_blocks=num_blocks)
    features = features_of(TOKENS, MASK)
    rows = np.array(MODEL.lm_head.weight, np.float64)[list(IDS)]
    truth = np.exp(log_softmax(reference_logits(MODEL, TOKENS.tolist())[:, list(IDS)]))
    said = log_softmax(numpy_states(objective.network, features.final) @ rows.T)
    expected = 0.0
    for place in range(60):
        for ahead in range(3):
            answer = MASK[place + 2 : place + 3 + ahead]
            if len(answer) == ahead + 1 and answer.all():
                expected -= 0.8**ahead * truth[place + 1 + ahead] @ said[ahead, place]
    assert objective.loss(features).item() == pytest.approx(expected, rel=1e-4)


def test_every_head_begins_as_the_target_s_own_guess():
    network = objective_of(ids=range(24)).network
    state = mx.random.normal((1, 64), key=mx.random.key(1))
    expected = np.tile(np.array(MODEL.logits(state)), (4, 1))
    np.testing.assert_allclose(np.array(network.logits(state, MODEL.logits)), expected, rtol=1e-5)


def test_figures_are_those_of_chains_along_the_greedy_answers():
    objective = objective_of(seed=3, num_heads=3)
    features = features_of(TOKENS, MASK)
    rows = np.array(MODEL.lm_head.weight, np.float64)[list(IDS)]
    order = np.argsort(-numpy_states(objective.network, features.final) @ rows.T, axis=-1)
    guesses = np.array(IDS)[order]
    hits = [
        [guesses[ahead, place] == TOKENS[place + 2 + ahead] for ahead in range(3)]
        for place in range(56)
        if (MASK[place + 2 : place + 5] == 1).all()
    ]
    shares = np.mean(hits, axis=0)
    figures = objective.evaluate([features, features])
    np.testing.assert_allclose(figures["accuracies"], shares[:, :NUM_RANKS], atol=1e-4)
    np.testing.assert_allclose(figures["top1_by_depth"], shares[:, 0], atol=1e-4)
    chains = np.cumprod(np.array(hits)[:, :, 0], axis=1).sum(axis=1)
    assert figures["mean_acceptance_length"] == pytest.approx(1 + chains.mean())
    assert 0 < chains.mean() < 3  # the text is random, but the case is not an empty one


@left_to_blas()  # as training is
def test_heads_learn_a_text_and_draft_it():
    text = [3, 7, 1, *Target(MODEL).greedy([3, 7, 1], 37)]
    mask = np.array([0] * 3 + [1] * 37, np.uint8)
    features = features_of(np.array(text, np.int32), mask)
    objective = objective_of(num_heads=2, ids=range(24))
    optimizer = optim.AdamW(0.01, weight_decay=0.0)
    gradients = nn.value_and_grad(objective.network, objective.loss)
    before = objective.evaluate([features])["top1_by_depth"]
    for _ in range(80):
        _, gradient = gradients(features)
        optimizer.update(objective.network, gradient)
        mx.eval(objective.network.parameters())
    figures = objective.evaluate([features])
    assert min(figures["top1_by_depth"]) > 0.8 > 0.5 > max(before)
    network = objective.network
    config = {**network.config, "accuracies": figures["accuracies"]}
    drafter = MedusaDrafter(MedusaHeads.from_checkpoint(config, network.tensors), Decoder(MODEL))
    hits = 0
    for place in range(3, 37):
        drafter.read([text[place]], HiddenStates(features.final[place : place + 1], {}))
        hits += (
            drafter.propose(text[place + 1], 2).tree.tokens.tolist()[1:] == text[place + 2 :][:2]
        )
    assert hits > 24
