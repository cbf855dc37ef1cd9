"""Drafters that draw from a law of their own: siblings, shared noise, and choosing instead."""

from dataclasses import replace
from functools import partial

import mlx.core as mx
import numpy as np
import pytest

from mlxspec.decoder.decoder import Decoder
from mlxspec.drafters.draft_model import DraftModelDrafter
from mlxspec.drafters.search.drawing import DrawingDrafter
from mlxspec.params import SamplingParams
from mlxspec.verify import noise as draws
from mlxspec.verify.distribution import NodeDistributions
from mlxspec.verify.noise import Noise
from tests.support.tiny import tiny_model
from tests.support.tiny_heads_eagle import eagle3_drafter, eagle_drafter
from tests.support.tiny_heads_exit import exit_drafter

SAMPLING = SamplingParams(temperature=1.0)
P = np.array([0.4, 0.05, 0.25, 0.2, 0.1])
N_DRAWS = 40_000


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr(draws, "BLOCK", 2)


def distributions_of(n_nodes):
    return NodeDistributions(SAMPLING, mx.broadcast_to(mx.log(mx.array(P)), (n_nodes, len(P))))


def started(prompt, noise=None):
    drafter = DrawingDrafter(len(P), lookahead=4, samples=True)
    drafter.couple(noise)
    drafter.start(prompt, SAMPLING, mx.random.key(4))
    return drafter


def test_siblings_are_drawn_without_replacement(small_blocks):
    pairs = np.array(started([1]).draw(distributions_of(N_DRAWS), depth=1, count=2)).reshape(-1, 2)
    shares = np.bincount(pairs @ [len(P), 1], minlength=len(P) ** 2).reshape(len(P), -1) / N_DRAWS
    expected = np.outer(P / (1 - P), P) * (1 - np.eye(len(P)))
    np.testing.assert_allclose(shares, expected, atol=4 * np.sqrt(0.1 * 0.9 / N_DRAWS))


def test_with_shared_noise_the_first_sibling_is_what_the_target_would_draw(small_blocks):
    noise, siblings = Noise.of_seed(3), set()
    for length in range(1, 60):
        drafter = started([1] * length, noise)
        drawn = drafter.draw(distributions_of(2), depth=3, count=3).reshape(2, 3).tolist()
        target = distributions_of(1).draw(noise.at(length + 2).gumbel(1, len(P))).item()
        assert [row[0] for row in drawn] == [target, target]
        assert all(len(set(row)) == 3 for row in drawn)
        siblings.add(tuple(drawn[0]))
    assert len(siblings) > 10


MODEL = tiny_model()
PROMPT = [3, 7, 1, 3, 7, 1, 4, 3]
DRAFTERS = {
    "model": lambda target, samples: DraftModelDrafter(
        Decoder(tiny_model(seed=7)), 24, samples=samples
    ),
    "eagle": eagle_drafter,
    "eagle3": eagle3_drafter,
    "exit": partial(exit_drafter, threshold=1e-6),
}


@pytest.mark.parametrize("drafter", DRAFTERS)
def test_told_not_to_draw_it_proposes_what_it_does_at_temperature_0(drafter):
    sampling, drafts = SamplingParams(0.9, repetition_penalty=1.3, logit_bias={2: 1.5}), []
    for own, samples in ((replace(sampling, temperature=0.0), True), (sampling, False)):
        target = Decoder(MODEL)
        made = DRAFTERS[drafter](target, samples=samples)
        target.attach(made.readers)
        target.observe(PROMPT[:-1])
        made.start(PROMPT, own, mx.random.key(0))
        drafts.append(made.propose(PROMPT[-1], 4))
    greedy, chosen = drafts
    assert chosen.sampled_from is None
    assert chosen.tree.n_nodes == 5
    assert chosen.tree.tokens.tolist() == greedy.tree.tokens.tolist()
    assert chosen.tree.parents.tolist() == greedy.tree.parents.tolist()
    np.testing.assert_allclose(chosen.node_probs, greedy.node_probs, rtol=1e-5)
