"""Trees of ranks: which guesses of the heads make the draft, against trying all paths."""

import itertools

import mlx.core as mx
import numpy as np
import pytest

from mlxspec.drafters.medusa.rank_paths import most_accurate_paths
from mlxspec.drafters.medusa.rank_tree import DynamicTree, StaticTree

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


@pytest.mark.parametrize("budget", [1, 2, 3, 7, 16, 33])
@pytest.mark.parametrize("sharpness", [0.3, 2.0, 8.0])
@pytest.mark.parametrize("num_heads", [1, 3, 4])
def test_the_dynamic_tree_is_the_best_one(num_heads, sharpness, budget):
    seed = np.random.default_rng(int(100 * sharpness) + budget)
    log_probs = log_softmax(sharpness * seed.normal(size=(num_heads, 12)))
    nodes = DynamicTree().nodes(mx.array(log_probs, mx.float32), None, budget)
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
    nodes = DynamicTree(shares).nodes(mx.array(log_probs, mx.float32), None, budget)
    assert paths_of(nodes) == best_first(weighed, budget)
    ends = [weighed[len(path) - 1, path[-1]] for path in paths_of(nodes)]
    np.testing.assert_allclose(nodes.probs, np.exp(ends), rtol=1e-4)


def test_accuracies_of_fewer_heads_make_a_tree_of_these():
    logits = mx.array(np.random.default_rng(0).normal(size=(3, 12)), mx.float32)
    tree = DynamicTree([[0.5, 0.4], [0.3, 0.2]])
    assert tree.depth == 2
    assert max(map(len, paths_of(tree.nodes(logits, None, 20)))) == 2


@pytest.mark.parametrize("budget", range(1, 20))
@pytest.mark.parametrize("chances", [[1.0, 0.0, 0.0, 0.0], [0.5, 0.5, 0.0, 0.0], [0.25] * 4])
def test_ties_leave_the_dynamic_tree_whole(chances, budget):
    with np.errstate(divide="ignore"):
        logits = mx.array(np.log(np.tile(chances, (4, 1))), mx.float32)
    nodes = DynamicTree().nodes(logits, None, budget)
    assert len(paths_of(nodes)) == budget  # each child behind a parent in the tree, none twice


@pytest.mark.parametrize("accuracies", [None, [[0.5, 0.2, 0.1]] * 3])
def test_a_head_that_overflows_leaves_the_tree_whole(accuracies):
    logits = mx.array([[1.0, 2.0, 3.0], [mx.nan] * 3, [mx.inf, 1.0, 0.0]])
    nodes = DynamicTree(accuracies).nodes(logits, None, 9)
    assert len(paths_of(nodes)) == 9
    assert all(0 < prob <= 1 for prob in nodes.probs.tolist())


def test_the_dynamic_tree_refuses_accuracies_that_are_none():
    with pytest.raises(ValueError, match="shares from 0 to 1"):
        DynamicTree([[1.5]])


def test_the_dynamic_tree_ends_where_the_paths_do():
    nodes = DynamicTree().nodes(mx.array([[0.1, 0.2], [0.4, 0.3]]), None, 50)
    assert len(paths_of(nodes)) == 2 + 4


@pytest.mark.parametrize("budget", [1, 2, 5, 13, 40])
def test_the_static_tree_has_the_best_products_of_accuracies(budget):
    products = {}
    for depth in range(1, 4):
        for path in itertools.product(range(3), repeat=depth):
            shares = [ACCURACIES[head][rank] for head, rank in enumerate(path)]
            products[path] = np.prod(shares)
    best = sorted(products.values(), reverse=True)[:budget]
    paths = StaticTree(accuracies=ACCURACIES).paths(budget)
    assert [products[path] for path in paths] == pytest.approx(best)
    assert len(set(paths)) == len(paths) == min(budget, 39)


def test_the_static_tree_leaves_out_what_was_never_right():
    assert most_accurate_paths(((0.5, 0.0), (0.0, 0.25)), 9) == ((0,), (0, 1))


def test_a_static_tree_holds_the_guesses_of_its_ranks():
    logits = mx.array([[1.0, 4.0, 3.0, 2.0], [4.0, 3.0, 2.0, 1.0]])
    tree = StaticTree(choices=[[0], [2], [0, 1], [2, 0], [1]])
    assert paths_of(tree.nodes(logits, None, 4)) == [(1,), (3,), (1, 1), (3, 0)]
    ids = mx.array([10, 20, 30, 40], mx.int32)
    assert paths_of(tree.nodes(logits, ids, 2)) == [(20,), (40,)]
    assert tree.nodes(logits, None, 4).probs is None


def test_a_static_tree_states_its_accuracies():
    nodes = StaticTree(accuracies=ACCURACIES).nodes(mx.zeros((3, 8)), None, 3)
    assert nodes.probs.tolist() == pytest.approx([0.5, 0.4, 0.2])


def test_a_static_tree_leaves_out_ranks_that_a_small_vocabulary_lacks():
    tree = StaticTree(choices=[[0], [3], [0, 1]])
    assert paths_of(tree.nodes(mx.array([[2.0, 1.0], [1.0, 2.0]]), None, 8)) == [(0,), (0, 0)]


def test_choices_may_stand_before_their_beginnings():
    tree = StaticTree(choices=[[1, 0], [0], [1]])
    assert tree.paths(8) == ((1,), (1, 0), (0,))
    assert tree.paths(2) == ((1,), (1, 0))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "give one"),
        ({"choices": [[0]], "accuracies": [[0.5]]}, "give one"),
        ({"choices": [[0, 1]]}, r"add \(0,\)"),
        ({"choices": [[0], [0]]}, "twice"),
        ({"choices": [[-1]]}, "0 for the best"),
        ({"choices": [[]]}, "0 for the best"),
        ({"accuracies": [[1.5]]}, "from 0 to 1"),
    ],
)
def test_says_what_is_wrong_with_a_static_tree(settings, message):
    with pytest.raises(ValueError, match=message):
        StaticTree(**settings)
