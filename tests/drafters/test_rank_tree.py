"""Trees of ranks: which guesses of the heads make the draft, against trying all paths."""

import itertools

import mlx.core as mx
import numpy as np
import pytest

from mlxspec.drafters.medusa.rank_tree import RankTree
from tests.support.pairwise import each_value, pairwise

ACCURACIES = [[0.5, 0.2, 0.1], [0.4, 0.25, 0.1], [0.3, 0.1, 0.2]]  # ranks need not fall


def log_softmax(logits):
    shifted = logits - logits.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


def rows_of(log_probs):
    """(H, V) logits whose log-probabilities are these: each row sums to 1 by its last entry."""
    rest = np.log1p(-np.exp(log_probs).sum(axis=1, keepdims=True))
    return mx.array(np.concatenate([log_probs, rest], axis=1), mx.float32)


def best_first(log_probs, budget):
    """Token paths of the best products, by trying them all; ties go to the lexically first."""
    ranked = np.argsort(-log_probs, axis=1, kind="stable")[:, :10]
    paths = []
    for depth in range(1, len(log_probs) + 1):
        for ranks in itertools.product(range(ranked.shape[1]), repeat=depth):
            tokens = tuple(int(ranked[head, rank]) for head, rank in enumerate(ranks))
            total = np.float64(0)
            for head, token in enumerate(tokens):
                total += log_probs[head, token]
            paths.append((-total, ranks, tokens))
    return [tokens for _, _, tokens in sorted(paths)[:budget]]


def paths_of(nodes):
    tokens, parents = nodes.tokens.tolist(), nodes.parents.tolist()
    paths = [()]
    for token, parent in zip(tokens, parents, strict=True):
        assert 0 <= parent < len(paths)
        paths.append((*paths[parent], token))
    assert len(set(paths)) == len(paths)
    return paths[1:]


@pairwise(num_heads=[1, 3, 4], sharpness=[0.3, 2.0, 8.0], budget=[1, 2, 3, 7, 16, 33])
def test_the_tree_is_the_best_one(num_heads, sharpness, budget):
    seed = np.random.default_rng(int(100 * sharpness) + budget)
    log_probs = log_softmax(sharpness * seed.normal(size=(num_heads, 12)))
    nodes = RankTree().nodes(mx.array(log_probs, mx.float32), None, budget)
    assert paths_of(nodes) == best_first(log_probs, budget)


@pytest.mark.parametrize("budget", [1, 3, 7, 16])
def test_accuracies_are_weighed_in_as_a_geometric_mean(budget):
    log_probs = log_softmax(2.0 * np.random.default_rng(budget).normal(size=(3, 12)))
    shares = [[0.4, 0.1, 0.2, 0.0], [0.3, 0.3, 0.1, 0.05], [0.2, 0.1, 0.1, 0.1]]
    trusted = [[0.4, 0.1, 0.1, np.exp(-60)], *shares[1:]]  # no rank above the one before it
    weighed = np.full_like(log_probs, -1e9)
    for head, row in enumerate(trusted):
        best = np.argsort(-log_probs[head], kind="stable")[: len(row)]
        weighed[head, best] = (log_probs[head, best] + np.log(row)) / 2
    nodes = RankTree(shares).nodes(mx.array(log_probs, mx.float32), None, budget)
    assert paths_of(nodes) == best_first(weighed, budget)
    ends = [weighed[len(path) - 1, path[-1]] for path in paths_of(nodes)]
    np.testing.assert_allclose(nodes.probs, np.exp(ends), rtol=1e-4)


def test_accuracies_of_fewer_heads_make_a_tree_of_these():
    logits = mx.array(np.random.default_rng(0).normal(size=(3, 12)), mx.float32)
    tree = RankTree([[0.5, 0.4], [0.3, 0.2]])
    assert tree.depth == 2
    assert max(map(len, paths_of(tree.nodes(logits, None, 20)))) == 2


@each_value(chances=[[1.0, 0.0, 0.0, 0.0], [0.5, 0.5, 0.0, 0.0], [0.25] * 4], budget=range(1, 20))
def test_ties_leave_the_tree_whole(chances, budget):
    with np.errstate(divide="ignore"):
        logits = mx.array(np.log(np.tile(chances, (4, 1))), mx.float32)
    nodes = RankTree().nodes(logits, None, budget)
    assert len(paths_of(nodes)) == budget  # each child behind a parent in the tree, none twice


@pytest.mark.parametrize("accuracies", [None, [[0.5, 0.2, 0.1]] * 3])
def test_a_head_that_overflows_leaves_the_tree_whole(accuracies):
    logits = mx.array([[1.0, 2.0, 3.0], [mx.nan] * 3, [mx.inf, 1.0, 0.0]])
    nodes = RankTree(accuracies).nodes(logits, None, 9)
    assert len(paths_of(nodes)) == 9
    assert all(0 < prob <= 1 for prob in nodes.probs.tolist())


def test_the_tree_refuses_accuracies_that_are_none():
    with pytest.raises(ValueError, match="shares from 0 to 1"):
        RankTree([[1.5]])


def test_the_tree_ends_where_the_paths_do():
    nodes = RankTree().nodes(mx.array([[0.1, 0.2], [0.4, 0.3]]), None, 50)
    assert len(paths_of(nodes)) == 2 + 4
