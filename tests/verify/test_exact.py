"""Verification from end to end, exactly: logits, filters and penalties in, tokens out.

`test_chains` and `test_traversal` judge the rules as functions. Here the same sums are made
through `verify` itself, with laws as a reply makes them of logits: every draft that can be drawn,
every verdict on it. The truth is the law that NumPy computes anew for every text.
"""

from collections import Counter
from itertools import product
from math import nan

import mlx.core as mx
import numpy as np
import pytest

import mlxspec.verify.rules as verify_module
from mlxspec.drafts.draft import Draft
from mlxspec.drafts.shape import TreeShape
from mlxspec.drafts.tree import DraftTree
from mlxspec.params import SamplingParams
from mlxspec.verify.distribution import NodeDistributions, TokenCounts, adjust
from mlxspec.verify.noise import Noise
from mlxspec.verify.rules import verify
from mlxspec.verify.traversal import traversal_rule
from tests.support.exact_distribution import ContextDistributions, paths_of
from tests.support.pairwise import each_value
from tests.support.truth import exact_distribution
from tests.verify.test_chains import Chains
from tests.verify.test_traversal import children_of, drafts, ends, inner_of, rows_of

PROMPT = (2, 0, 0)  # its last token is the root
VOCAB = 3
SAMPLING = {
    "temperature": SamplingParams(temperature=0.7),
    "top-k": SamplingParams(temperature=1.3, top_k=2),
    "top-p": SamplingParams(temperature=1.0, top_p=0.7),
    "min-p": SamplingParams(temperature=1.0, min_p=0.35),
    "all filters": SamplingParams(temperature=0.9, top_k=2, top_p=0.9, min_p=0.05),
    "mlx-lm's order": SamplingParams(
        temperature=2.0, top_p=0.8, top_k=2, min_p=0.1, filter_order="mlx-lm"
    ),
    "choices excluded": SamplingParams(temperature=0.8, xtc_probability=0.4, xtc_threshold=0.2),
    "penalties": SamplingParams(
        temperature=1.0, repetition_penalty=1.5, presence_penalty=0.6, frequency_penalty=0.4
    ),
    "penalties, bias and a filter": SamplingParams(
        temperature=0.8, repetition_penalty=1.2, presence_penalty=0.9, top_k=2, logit_bias={1: 0.7}
    ),
}


class FilteredDistributions(ContextDistributions):
    """The law of a model that knows the last two tokens, under filters and penalties.

    With `zeros`, it finds some tokens impossible.
    """

    def __init__(self, seed, sampling, *, zeros=False):
        super().__init__(seed)
        random = np.random.default_rng(seed)
        self.sampling, self._logits = sampling, 1.5 * random.normal(size=(VOCAB, VOCAB, VOCAB))
        if zeros:
            self._logits[random.random(self._logits.shape) < 0.2] = -np.inf
            self._logits[..., 1] = np.maximum(self._logits[..., 1], -1)  # never all of them

    def logits(self, context):
        text = (*PROMPT, *context)
        return self._logits[text[-2], text[-1]]

    def __call__(self, context):
        if context not in self._distributions:
            text = (*PROMPT, *context)
            self._distributions[context] = exact_distribution(
                self.logits(context), self.sampling, text, context
            )
        return self._distributions[context]


def node_distributions(sampling, logits, tree):
    """The laws after each node, as a reply makes them."""
    counts = TokenCounts.of(list(PROMPT), VOCAB).along(tree) if sampling.has_penalties else None
    return NodeDistributions(sampling, logits, adjust(sampling, logits, counts))


def close(found, p, length):
    joint = p.continued(found, length)
    assert sum(joint.values()) == pytest.approx(1, abs=2e-6)
    for tokens, prob in p.joint(length).items():
        assert float(joint[tokens]) == pytest.approx(float(prob), abs=3e-6)


@pytest.fixture
def certain(monkeypatch):
    """Lets verification take uniforms that a test gives, and tell the law of the bonus token."""
    given, uniform = [], mx.random.uniform

    def chosen(shape, key):
        return given[-1] if tuple(shape) == given[-1].shape else uniform(shape=shape, key=key)

    monkeypatch.setattr(verify_module, "draw", lambda probs, noise: probs)
    monkeypatch.setattr(mx.random, "uniform", chosen)
    return given


# ---- chains ----------------------------------------------------------------------------------


class VerifiedChains(Chains):
    """Chains that go through `verify`; a row of q may be broken, whatever was drawn from it."""

    def __init__(self, rule, p, q, n, given, broken=None):
        self.given, self.broken = given, broken or {}
        super().__init__(rule, p, q, n)

    def __post_init__(self):
        super().__post_init__()
        places = range(self.n + 1)
        logits = [[self.p.logits(c[:i]) for i in places] for c in self.chains]
        stated = [
            [self.broken.get(c[:i], [float(x) for x in self.q(c[:i])]) for i in places[:-1]]
            for c in self.chains
        ]
        self._arrays = self._arrays[0], mx.array(np.array(logits, np.float32)), mx.array(stated)

    def __call__(self, uniforms):
        k = len(uniforms)
        flat = mx.array(uniforms.reshape(-1, self.n), mx.float32)
        found = mx.vmap(self._one)(*[mx.concatenate([a] * k) for a in self._arrays], flat)
        return [np.array(x).reshape(k, -1, *x.shape[1:]) for x in found]

    def _one(self, tokens, logits, q, uniforms):
        tree = DraftTree.chain(mx.concatenate([mx.array(PROMPT[-1:], mx.int32), tokens]))
        self.given.append(uniforms)
        distributions = node_distributions(self.p.sampling, logits, tree)
        verdict = verify(Draft(tree, sampled_from=q), distributions, Noise.of_seed(0), self.rule)
        return verdict.accepted.sum() - 1, verdict.bonus_token


@each_value(
    rule=["token", "block"],
    sampling=SAMPLING,
    zeros=[pytest.param(False, id="all possible"), pytest.param(True, id="zeros in p and q")],
)
def test_a_chain_leaves_the_joint_law_of_filters_and_penalties(rule, sampling, zeros, certain):
    p, q = (FilteredDistributions(seed, SAMPLING[sampling], zeros=zeros) for seed in (1, 2))
    close(VerifiedChains(rule, p, q, 2, certain).law(), p, 3)


BROKEN = {
    "NaN": [nan] * 3,
    "one NaN": [0.5, nan, 0.5],
    "not normalised": [1.0, 1.0, 1.0],
    "nothing": [0.0] * 3,
    "negative": [-0.5, 0.5, 1.0],
}


@each_value(
    rule=["token", "block"],
    row=BROKEN,
    place=[
        pytest.param([()], id="first"),
        pytest.param([(1,)], id="second"),
        pytest.param([(0,), (1, 2)], id="some"),
    ],
)
def test_a_row_that_is_no_law_ends_the_chain_there(rule, row, place, certain):
    """Whether it is one depends on what was drawn above, which is as good as ever."""
    p, q = FilteredDistributions(3, SAMPLING["temperature"]), ContextDistributions(4)
    broken = dict.fromkeys(place, BROKEN[row])
    close(VerifiedChains(rule, p, q, 3 if place[-1] else 2, certain, broken).law(), p, 4)


# ---- trees -----------------------------------------------------------------------------------


def judged(p, stated, widths, paths, monkeypatch):
    """The order in which `verify` judges the nodes of a drawn tree."""
    shape, orders, nodes = TreeShape(widths), [], [(), *paths]
    tree = shape.tree(mx.array([PROMPT[-1], *(path[-1] for path in paths)], mx.int32))
    rows = rows_of(stated, inner_of(widths, nodes))
    logits = mx.array(np.array([p.logits(node) for node in nodes], np.float32))

    def spy(order, uniforms):
        orders.append(order)
        assert uniforms.shape == (tree.n_nodes - 1,)
        return traversal_rule(order, uniforms)

    monkeypatch.setattr(verify_module, "traversal_rule", spy)
    draft = Draft(tree, sampled_from=rows, branching=shape)
    verdict = verify(draft, node_distributions(p.sampling, logits, tree), Noise.of_seed(0))
    accepted = np.flatnonzero(np.array(verdict.accepted)).tolist()
    assert accepted == [
        n for n in range(len(nodes)) if nodes[accepted[-1]][: len(nodes[n])] == nodes[n]
    ]
    return orders[0]


def tree_distribution(p, q, widths, monkeypatch, stated=None):
    assert TreeShape(widths).children == children_of(widths)
    found = Counter()
    for weight, paths in drafts(q, widths):
        order = judged(p, stated or q, widths, paths, monkeypatch)
        for prob, said in ends(order, [(), *paths], weight):
            found[said] += prob
    return found


@each_value(
    widths=[(3,), (2, 1)],
    sampling=SAMPLING,
    zeros=[pytest.param(False, id="all possible"), pytest.param(True, id="zeros in p and q")],
)
def test_a_drawn_tree_leaves_the_joint_law_of_filters_and_penalties(
    widths, sampling, zeros, monkeypatch
):
    p, q = (FilteredDistributions(seed, SAMPLING[sampling], zeros=zeros) for seed in (5, 6))
    close(tree_distribution(p, q, widths, monkeypatch), p, len(widths) + 1)


@each_value(
    place=[
        pytest.param([()], id="root"),
        pytest.param([(1,)], id="one"),
        pytest.param([(0,), (2,)], id="two"),
    ],
    row=BROKEN,
)
def test_a_row_that_is_no_law_ends_the_branch_there(row, place, monkeypatch):
    p, q = FilteredDistributions(7, SAMPLING["temperature"]), ContextDistributions(8)
    stated = dict.fromkeys(place, BROKEN[row])
    joint = tree_distribution(p, q, (2, 1), monkeypatch, lambda node: stated.get(node, q(node)))
    close(joint, p, 3)


# ---- what was not drawn ----------------------------------------------------------------------


class Forced:
    """Noise under which the target draws given tokens, one at each depth, where it can at all."""

    def __init__(self, tokens):
        self.tokens = tokens

    def gumbel(self, count, width):
        rows = mx.zeros((count, width))
        for depth, token in enumerate(self.tokens[:count]):
            rows[depth, token] = 1e6
        return rows


MATCHED = {
    "chain": ([0, 1, 2], [-1, 0, 1]),
    "every child": ([0, 0, 1, 2], [-1, 0, 0, 0]),
    "two levels": ([0, 1, 2, 1, 0, 2], [-1, 0, 0, 1, 2, 2]),
}


def replies(p, tokens, parents):
    """Yield (tokens that noise makes the target draw at each depth, its reply up to an end).

    Draws that the target cannot say are left out: there the next best is another case.
    """
    paths = paths_of(tokens, parents)
    for drawn in product(range(VOCAB), repeat=max(map(len, paths)) + 1):
        said = ()
        while said in paths and p(said)[drawn[len(said)]] > 0:
            said = (*said, drawn[len(said)])
        if said not in paths:
            yield drawn, said


@each_value(name=MATCHED, sampling=SAMPLING)
def test_a_matched_tree_goes_as_far_as_the_targets_own_draws(name, sampling):
    """Whatever the noise makes the target say at each depth, where its law allows it."""
    p, paths = FilteredDistributions(9, SAMPLING[sampling], zeros=True), paths_of(*MATCHED[name])
    tree = DraftTree.from_lists(*MATCHED[name])
    logits = mx.array(np.array([p.logits(path) for path in paths], np.float32))
    distributions = node_distributions(p.sampling, logits, tree)
    texts = set()
    for drawn, said in replies(p, *MATCHED[name]):
        verdict = verify(Draft(tree), distributions, Forced(drawn))
        accepted = np.flatnonzero(np.array(verdict.accepted)).tolist()
        texts.add(said)
        assert paths[accepted[-1]] == said[:-1]
        assert verdict.bonus_token.item() == said[-1]
        assert verdict.from_residual.item() == (accepted[-1] in MATCHED[name][1])
    assert len(texts) > 1
