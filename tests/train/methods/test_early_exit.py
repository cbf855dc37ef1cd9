"""Training an early exit: its losses, and the figures of its evaluation."""

import mlx.core as mx
import numpy as np
import pytest
from mlx import nn, optimizers

from mlxspec.decoder.decoder import Decoder
from mlxspec.device.core_split import left_to_blas
from mlxspec.drafters.early_exit import EarlyExitDrafter
from mlxspec.params import SamplingParams
from mlxspec.train.methods.early_exit import ExitObjective
from mlxspec.train.objective import LOOKAHEAD
from tests.support.tiny import tiny_model
from tests.support.tiny_heads_exit import exit_hidden
from tests.support.training import features, mean_chain, with_gap

MODEL = tiny_model()
IDS = [0, 2, 3, 5, 7, 8, 11, 12, 17, 20]
CONVERSATIONS = [features(MODEL, seed=seed, length=24) for seed in range(6)]


def objective(ids=IDS, **settings):
    mx.random.seed(4)
    made = ExitObjective(MODEL, mx.array(list(ids), mx.int32), layer=1, **settings)
    made.fit_lens(CONVERSATIONS)
    return made


@left_to_blas()  # as training is
def trained(made, steps=18):
    """The same after a few steps, so that blocks and norms count."""
    gradients = nn.value_and_grad(made.network, made.loss)
    adam = optimizers.Adam(1e-3, bias_correction=True)
    for step in range(steps):
        _, gradient = gradients(CONVERSATIONS[step % len(CONVERSATIONS)])
        adam.update(made.network, gradient)
        mx.eval(made.network.parameters())
    return made


def hidden_rows(made, given):
    """{position: state for the head} in NumPy; positions whose next token is an answer's."""
    states = np.array(given.entering[1], np.float64)
    positions = [t for t in range(len(given.tokens) - 1) if given.mask[t + 1] > 0]
    return {t: exit_hidden(made.network, states[t]) for t in positions}


def test_the_loss_is_that_of_the_formula():
    made, given = trained(objective(state_weight=0.3)), features(MODEL, length=12, prompt=4, seed=9)
    head, final = np.array(MODEL.lm_head.weight)[IDS], np.array(given.final, np.float64)
    rows = hidden_rows(made, given)
    scale = np.mean([np.square(final[t]).mean() for t in rows])
    expected = 0.0
    for t, row in rows.items():
        probs = np.exp(head @ final[t]) / np.exp(head @ final[t]).sum()
        expected -= (probs * (head @ row - np.log(np.exp(head @ row).sum()))).sum()
        expected += 0.3 * np.square(row - final[t]).mean() / scale
    assert list(rows) == list(range(3, 11))
    np.testing.assert_allclose(made.loss(given).item(), expected, rtol=1e-4)


def test_the_lens_is_the_least_squares_map():
    made = objective()
    states = np.concatenate([np.array(one.entering[1])[4:-1] for one in CONVERSATIONS])
    final = np.concatenate([np.array(one.final)[4:-1] for one in CONVERSATIONS])
    inputs = states / np.sqrt(np.square(states).mean(axis=1, keepdims=True) + 1e-5)
    weight, bias = np.array(made.network.fc.weight), np.array(made.network.fc.bias)
    ridge = 1e-3 * (np.square(inputs).sum() + len(inputs)) / 65

    def cost(weight, bias):
        misses = np.square(inputs @ weight.T + bias - final).sum()
        return misses + ridge * (np.square(weight).sum() + np.square(bias).sum())

    least = cost(weight, bias)
    rng = np.random.default_rng(0)
    for size in (1e-3, 1e-2):
        for _ in range(5):
            there = cost(weight + size * rng.normal(size=weight.shape), bias)
            assert there > least
            assert cost(weight, bias + size * rng.normal(size=64)) > least


def test_a_lens_needs_an_answer():
    with pytest.raises(ValueError, match="without assistant tokens"):
        objective().fit_lens([features(MODEL, length=6, prompt=6)])


def test_the_figures_are_those_of_the_greedy_choices():
    made = trained(objective())
    greedy, sampled = features(MODEL, length=20, seed=8), features(MODEL, seed=9, kind=2)
    greedy.tokens[10:14] = [IDS[int(i)] for i in (1, 0, 1, 1)]
    figures = made.evaluate([greedy, sampled])
    head = np.array(MODEL.lm_head.weight)[IDS]
    hits = [
        IDS[int(np.argmax(head @ row))] == greedy.tokens[t + 1]
        for t, row in hidden_rows(made, greedy).items()
    ]
    lengths = [
        1 + sum(np.cumprod(hits[i : i + LOOKAHEAD])) for i in range(len(hits) - LOOKAHEAD + 1)
    ]
    assert figures["mean_acceptance_length"] == pytest.approx(np.mean(lengths))


def test_no_chain_leaves_its_answer():
    made, given = objective(), with_gap(features(MODEL, length=60, seed=8), 30, 40)
    drafted = made.drafted(given, np.arange(59))
    right = np.arange(59) % 5 != 0
    given.tokens[1:] = np.where(right, drafted, (drafted + 1) % 24)
    expected = mean_chain([right] * LOOKAHEAD, [*range(4, 29), *range(39, 59)])
    assert made.evaluate([given])["mean_acceptance_length"] == pytest.approx(expected)


def test_a_trained_exit_drafts_what_it_was_judged_by():
    made, given = trained(objective()), features(MODEL, length=20, seed=8)
    decoder = Decoder(MODEL)
    decoder.observe(given.tokens[:9].tolist())
    drafter = EarlyExitDrafter(made.network, decoder, threshold=1e-6, lookahead=1)
    prompt = given.tokens[:10].tolist()
    drafter.start(prompt, SamplingParams(), mx.random.key(0))
    drafted = made.drafted(given, np.array([9]))
    assert drafter.propose(prompt[-1], 1).tree.tokens.tolist()[1:] == drafted.tolist()
