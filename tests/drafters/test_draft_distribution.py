"""How a drafter's law draws: siblings without replacement, over a vocabulary of several blocks."""

import mlx.core as mx
import numpy as np
import pytest

from mlxspec.drafters.search.drawing import DrawingDrafter
from mlxspec.params import SamplingParams
from mlxspec.verify import noise as draws
from mlxspec.verify.distribution import NodeDistributions
from mlxspec.verify.noise import Noise, gumbel

SAMPLING = SamplingParams(temperature=1.0)
P = np.array([0.4, 0.05, 0.25, 0.2, 0.1])
N_DRAWS = 40_000


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(draws, "BLOCK", 2)


def distributions_of(n_nodes):
    return NodeDistributions(SAMPLING, mx.broadcast_to(mx.log(mx.array(P)), (n_nodes, len(P))))


def started(prompt, noise=None):
    drafter = DrawingDrafter(len(P), lookahead=4, samples=True)
    drafter.couple(noise)
    drafter.start(prompt, SAMPLING, mx.random.key(4))
    return drafter


def test_siblings_are_drawn_without_replacement():
    pairs = np.array(started([1]).draw(distributions_of(N_DRAWS), depth=1, count=2)).reshape(-1, 2)
    shares = np.bincount(pairs @ [len(P), 1], minlength=len(P) ** 2).reshape(len(P), -1) / N_DRAWS
    expected = np.outer(P / (1 - P), P) * (1 - np.eye(len(P)))
    np.testing.assert_allclose(shares, expected, atol=4 * np.sqrt(0.1 * 0.9 / N_DRAWS))


def test_with_shared_noise_the_first_sibling_is_what_the_target_would_draw():
    noise, siblings = Noise.of_seed(3), set()
    for length in range(1, 60):
        drafter = started([1] * length, noise)
        drawn = drafter.draw(distributions_of(2), depth=3, count=3).reshape(2, 3).tolist()
        target = distributions_of(1).draw(noise.at(length + 2).gumbel(1, len(P))).item()
        assert [row[0] for row in drawn] == [target, target]
        assert all(len(set(row)) == 3 for row in drawn)
        siblings.add(tuple(drawn[0]))
    assert len(siblings) > 10


@pytest.mark.parametrize("count", [1, 3])
def test_a_draw_takes_noise_for_the_blocks_and_for_one_of_them(count):
    assert gumbel(count, len(P), mx.random.key(1)).shape == (count, 2 + 3)
