"""Trees grown on the device against the same growth by hand, over a law written in NumPy."""

import mlx.core as mx
import numpy as np
import pytest

from mlxspec.drafters.search.beam import BeamShape, NextTokens, grow_beam
from mlxspec.params import DraftLimits
from tests.support.drafting import assert_valid
from tests.support.eagle_reference import beam, paths_of
from tests.support.pairwise import each_value

ROOT = 30
VOCAB = 6


class RandomDistribution:
    """A law over `VOCAB` tokens that depends on the whole path; `expand` follows the paths."""

    def __init__(self, seed=0, spread=1.5):
        self.seed, self.spread = seed, spread
        self.num_levels = 0

    def logits(self, path):
        rng = np.random.default_rng([self.seed, *path])
        return rng.normal(0, self.spread, VOCAB)

    def probs(self, path):
        weights = np.exp(self.logits(path))
        return dict(enumerate(weights / weights.sum()))

    def grow(self, shape, budget):
        before = [()]

        def next_tokens(paths):
            rows = [self.logits(path) for path in paths]
            return NextTokens.of(mx.array(np.stack(rows)), shape.width)

        def expand(tokens, parents, on_path):
            nonlocal before
            self.num_levels += 1
            edges = zip(parents.tolist(), tokens.tolist(), strict=True)
            before = [(*before[parent], token) for parent, token in edges]
            return next_tokens(before)

        return grow_beam(ROOT, next_tokens(before), expand, shape, budget, "eagle")


@each_value(budget=[1, 2, 5, 8, 16, 40], shape=[(1, 4), (2, 3), (3, 4), (4, 2), (9, 3), (5, 1)])
def test_grows_the_tree_that_is_grown_by_hand(budget, shape):
    width, depth = shape
    distribution = RandomDistribution(width)
    draft = distribution.grow(BeamShape(width, depth, width), budget)
    expected = beam(distribution.probs, width, depth, budget)
    assert_valid(draft, ROOT, budget)
    assert draft.sources == ("eagle",) * len(expected)
    found = paths_of(draft)
    assert set(found) == set(expected)
    np.testing.assert_allclose(list(found.values()), [expected[p] for p in found], rtol=1e-4)
    assert list(found.values()) == sorted(found.values(), reverse=True)
    assert distribution.num_levels == depth - 1  # what is at hand costs no forward


def sorted_with_ties_backwards(x):
    """What `mx.argsort` may do on another device: it does not promise an order among equals."""
    order = np.lexsort((-np.arange(x.size), np.array(x)))
    return mx.array(order.astype(np.uint32))


@pytest.mark.parametrize("log_prob", [0.0, -1e-9, -30.0, -mx.inf, mx.nan, 1e-7])
def test_parents_stand_before_their_children_where_all_are_equally_probable(log_prob, monkeypatch):
    monkeypatch.setattr(mx, "argsort", sorted_with_ties_backwards)

    def rows(count):
        tokens = mx.broadcast_to(mx.arange(4), (count, 4))
        return NextTokens(tokens, mx.full((count, 4), log_prob))

    for depth, budget in ((2, 5), (3, 20), (6, 11)):
        draft = grow_beam(
            ROOT,
            rows(1),
            lambda tokens, *_: rows(tokens.shape[0]),
            BeamShape(4, depth, 4),
            budget,
            "",
        )
        parents = draft.tree.parents.tolist()
        assert len(parents) == budget + 1
        assert all(parent < node for node, parent in enumerate(parents))
        assert len(set(paths_of(draft))) == budget


def test_logits_that_are_no_numbers_still_make_a_tree():
    bad = NextTokens.of(mx.full((1, 300), mx.nan), 3)
    draft = grow_beam(ROOT, bad, lambda *_: bad, BeamShape(3, 1, 3), 3, "eagle")
    tokens = draft.tree.tokens.tolist()[1:]
    assert len(set(tokens)) == 3
    assert all(0 <= token < 300 for token in tokens)


@pytest.mark.parametrize(
    ("budget", "limits", "shape"),
    [
        (1, DraftLimits(), (1, 1, 1)),
        (2, DraftLimits(), (2, 2, 2)),
        (4, DraftLimits(), (3, 3, 3)),
        (16, DraftLimits(), (6, 5, 6)),
        (60, DraftLimits(), (10, 7, 10)),
        (16, DraftLimits(branching=2), (6, 5, 2)),
        (3, DraftLimits(9, 9), (2, 3, 3)),
    ],
)
def test_a_larger_budget_reaches_deeper_and_wider_within_the_limits(budget, limits, shape):
    assert BeamShape.for_budget(budget, limits) == BeamShape(*shape)
