"""Noise by position: what it depends on, what it does not, and the law of what is drawn with it.

The law is found in whole draws: a target that knows the last token alone, a round with a tree of
drafts, and plain decoding in NumPy after it.
"""

import mlx.core as mx
import numpy as np
import pytest

from mlxspec.drafts.draft import Draft
from mlxspec.drafts.tree import DraftTree
from mlxspec.params import SamplingParams
from mlxspec.verify.distribution import NodeDistributions
from mlxspec.verify.noise import BLOCK, Noise
from mlxspec.verify.rules import verify

VOCAB, N_DRAWS = 3, 3000
TARGET = np.log([[0.5, 0.3, 0.2], [0.1, 0.6, 0.3], [0.4, 0.2, 0.4]])  # logits after each token
TREES = {  # below token 0
    "nothing": ([0], [-1]),
    "a chain": ([0, 1, 1], [-1, 0, 1]),
    "every child": ([0, 0, 1, 2], [-1, 0, 0, 0]),
    "two levels": ([0, 1, 0, 1, 2, 0], [-1, 0, 0, 1, 1, 2]),
    "not in order of depth": ([0, 2, 0, 1, 0], [-1, 0, 1, 0, 3]),
}


def rows(noise, count=1, width=50):
    return np.array(noise.gumbel(count, width))


def test_a_row_depends_on_its_position_alone():
    noise = Noise.of_seed(3)
    many = rows(noise.at(7), 5)
    for i in range(5):
        np.testing.assert_array_equal(many[i], rows(noise.at(7 + i))[0])
        np.testing.assert_array_equal(many[i:], rows(noise.at(7 + i), 5 - i))


def test_every_seed_position_and_stream_has_noise_of_its_own():
    seeds = [Noise.of_seed(seed) for seed in (0, 1, 2, 2**32, 2**64 - 1)]
    keys = [
        tuple(noise.at(position).key_for(stream).tolist())
        for noise in seeds
        for position in (0, 1, 2, 1000)
        for stream in ("tokens", "verdict", "draft")
    ]
    assert len(set(keys)) == len(keys)


def test_neighbours_are_independent():
    """Seeds and positions that follow each other, and the two words of a key exchanged."""
    near = [Noise.of_seed(5).at(9), Noise.of_seed(5).at(10), Noise.of_seed(6).at(9)]
    near += [Noise(noise.key[::-1], 9) for noise in near[:1]]
    vocab_size = BLOCK * (100_000 - BLOCK)  # a draw from it takes 100,000 numbers
    draws = np.stack([rows(noise, width=vocab_size)[0] for noise in near])
    below = np.exp(-np.exp(-draws))  # uniform
    correlation = np.corrcoef(below) - np.eye(len(near))
    assert np.abs(correlation).max() < 5 / np.sqrt(100_000)


def continued(text, rows):
    """A text of up to three tokens after token 0, and what plain decoding adds to it."""
    text = list(text)
    while len(text) < 3:
        text.append(int(np.argmax(TARGET[[0, *text][-1]] + rows[len(text)])))
    return text[:3]


@pytest.mark.parametrize("name", TREES)
def test_matched_drafts_leave_the_tokens_of_plain_decoding(name):
    tree = DraftTree.from_lists(*TREES[name])
    distributions = NodeDistributions(
        SamplingParams(temperature=1.0), mx.array(TARGET)[tree.tokens]
    )
    lengths = set()
    for position in range(40):
        noise = Noise.of_seed(4).at(position)
        verdict = verify(Draft(tree), distributions, noise)
        path = np.flatnonzero(np.array(verdict.accepted))
        said = [*np.array(TREES[name][0])[path[1:]], verdict.bonus_token.item()]
        here = rows(noise, 3, VOCAB)
        assert continued(said, here) == continued([], here)
        lengths.add(len(said))
    assert max(lengths) == tree.num_levels


def test_what_is_drawn_with_it_follows_the_joint_law():
    noise = rows(Noise.of_seed(6), 3 * N_DRAWS, VOCAB).reshape(N_DRAWS, 3, VOCAB)
    texts = np.array([continued([], three) for three in noise])
    shares = np.bincount(texts @ [VOCAB**2, VOCAB, 1], minlength=VOCAB**3) / N_DRAWS
    p = np.exp(TARGET)
    expected = np.einsum("i,ij,jk->ijk", p[0], p, p).ravel()
    freedom = VOCAB**3 - 1
    chi_square = N_DRAWS * ((shares - expected) ** 2 / expected).sum()
    assert chi_square < freedom + 5 * np.sqrt(2 * freedom)
