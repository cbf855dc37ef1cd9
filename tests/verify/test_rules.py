"""The rules of verification on trees, at their edges and in whole draws.

The match rule is a function of the tokens that the target chose, so its law is found exactly by
going through all choices in fractions. `test_chains.py` does as much for sampled chains.
"""

from collections import Counter
from fractions import Fraction
from itertools import product
from math import prod

import mlx.core as mx
import numpy as np
import pytest

from mlxspec.drafts.draft import Draft
from mlxspec.drafts.tree import DraftTree
from mlxspec.params import SamplingParams
from mlxspec.verify.distribution import NodeDistributions
from mlxspec.verify.noise import Noise, draw, gumbel
from mlxspec.verify.rules import match_rule, verify
from tests.support.exact_distribution import ContextDistributions, paths_of
from tests.support.pairwise import each_value

TREES = {  # tokens and parents, over a vocabulary of 3
    "root alone": ([0], [-1]),
    "chain": ([0, 1, 2, 0], [-1, 0, 1, 2]),
    "two of three children": ([1, 0, 1], [-1, 0, 0]),
    "every child": ([2, 0, 1, 2], [-1, 0, 0, 0]),
    "the drawing": ([0, 1, 2, 0, 1], [-1, 0, 0, 1, 1]),
    "two levels": ([0, 1, 2, 1, 0, 2], [-1, 0, 0, 1, 2, 2]),
    "not in order of depth": ([0, 1, 1, 1, 2, 0], [-1, 0, 1, 2, 0, 4]),
    # No drafter may build these two; they must stay harmless.
    "equal siblings": ([0, 1, 1, 2, 0], [-1, 0, 0, 1, 2]),
    "equal siblings further down": ([0, 2, 1, 1, 1, 0], [-1, 0, 1, 1, 2, 3]),
}
LENGTH = 4


def make_tree(name):
    return DraftTree(*[mx.array(each, mx.int32) for each in TREES[name]])


def verdicts(name, p):
    """Yield (probability, accepted nodes, bonus, from_residual) over all choices of the target."""
    tree, distributions = make_tree(name), [p(path) for path in paths_of(*TREES[name])]
    for chosen in product(range(3), repeat=tree.n_nodes):
        weight = prod(
            (probs[y] for probs, y in zip(distributions, chosen, strict=True)), start=Fraction(1)
        )
        if weight:
            verdict = match_rule(tree, mx.array(chosen, mx.int32))
            accepted = np.flatnonzero(np.array(verdict.accepted)).tolist()
            yield weight, accepted, verdict.bonus_token.item(), verdict.from_residual.item()


# ---- the match rule ------------------------------------------------------------------------


@each_value(name=TREES, seed=[0, 1])
def test_the_match_rule_keeps_the_joint_law_and_accepts_as_often_as_the_target_says(name, seed):
    """No lossless rule can accept more of a tree that is a function of the past."""
    p = ContextDistributions(seed, zeros=seed == 1)
    paths, parents, emitted, mean = paths_of(*TREES[name]), TREES[name][1], Counter(), 0
    for weight, accepted, bonus, from_residual in verdicts(name, p):
        assert [parents[node] for node in accepted] == [-1, *accepted[:-1]]
        assert from_residual == (accepted[-1] in parents)
        emitted[(*paths[accepted[-1]], bonus)] += weight
        mean += weight * (len(accepted) - 1)
    assert p.continued(emitted, LENGTH) == p.joint(LENGTH)
    assert "equal" in name or mean == sum(p.prob(path) for path in set(paths) - {()})


def test_the_drawing_with_choices_made_by_hand():
    tree = make_tree("the drawing")
    for chosen, accepted, bonus, from_residual in (
        ([1, 0, 0, 2, 0], [1, 1, 0, 1, 0], 2, False),  # down the left edge to a leaf
        ([1, 1, 0, 2, 0], [1, 1, 0, 0, 1], 0, False),
        ([1, 2, 1, 1, 1], [1, 1, 0, 0, 0], 2, True),  # neither grandchild holds 2
        ([2, 0, 1, 2, 0], [1, 0, 1, 0, 0], 1, False),  # node 1 chose its child, but is not kept
        ([0, 0, 1, 2, 0], [1, 0, 0, 0, 0], 0, True),
    ):
        verdict = match_rule(tree, mx.array(chosen, mx.int32))
        assert verdict.accepted.astype(mx.int32).tolist() == accepted
        assert (verdict.bonus_token.item(), verdict.from_residual.item()) == (bonus, from_residual)


# ---- greedy --------------------------------------------------------------------------------


def argmax_walk(tokens, parents, logits):
    """The accepted nodes and the bonus token, by walking down the tree."""
    path = [0]
    while True:
        best = int(np.argmax(logits[path[-1]]))
        below = [i for i, parent in enumerate(parents) if parent == path[-1] and tokens[i] == best]
        if not below:
            return path, best
        path.append(below[0])


@pytest.mark.parametrize("seed", range(8))
def test_greedy_verification_is_the_argmax_walk(seed):
    random = np.random.default_rng(seed)
    tokens, parents = [0], [-1]
    while len(tokens) < 24:
        child = (int(random.integers(0, len(tokens))), int(random.integers(0, 5)))
        if child not in zip(parents, tokens, strict=True):
            parents.append(child[0])
            tokens.append(child[1])
    logits = random.integers(0, 4, (24, 5)).astype(np.float32)  # with ties
    draft = Draft(DraftTree.from_lists(tokens, parents))
    verdict = verify(draft, NodeDistributions(SamplingParams(), mx.array(logits)), Noise.of_seed(0))
    path, bonus = argmax_walk(tokens, parents, logits)
    assert np.flatnonzero(np.array(verdict.accepted)).tolist() == path
    assert verdict.bonus_token.item() == bonus


def test_a_sampled_chain_is_matched_at_temperature_0():
    """The argmax is accepted although the draft law gave it little mass, and nothing else is."""
    tree = DraftTree.from_lists([0, 1, 2, 2], [-1, 0, 1, 2])
    logits = mx.array([[0.0, 1.0, 0.9], [0.0, 0.0, 5.0], [1.0, 0.0, 0.9], [0.0, 0.0, 1.0]])
    q = mx.array([[0.0, 0.01, 0.99]] * 3)
    for seed in range(20):
        draft = Draft(tree, sampled_from=q)
        verdict = verify(draft, NodeDistributions(SamplingParams(), logits), Noise.of_seed(seed))
        assert verdict.accepted.tolist() == [True, True, True, False]
        assert (verdict.bonus_token.item(), verdict.from_residual.item()) == (0, True)


# ---- whole draws ---------------------------------------------------------------------------

VOCAB, N_DRAWS = 6, 20_000
TARGET = 1.5 * np.random.default_rng(1).normal(size=(VOCAB, VOCAB))  # logits after each token
OTHER = 1.5 * np.random.default_rng(2).normal(size=(VOCAB, VOCAB))
DRAFTERS = {
    "another law": OTHER,
    "the same law": TARGET,
    "the opposite law": -TARGET,
    "one token for ever": np.where(np.arange(VOCAB) == 3, 0.0, -np.inf) + 0 * TARGET,
}
SAMPLING = {
    "temperature": SamplingParams(temperature=0.9),
    "top-p": SamplingParams(temperature=1.0, top_p=0.8),
    "top-k and min-p": SamplingParams(temperature=1.3, top_k=4, min_p=0.1),
}


def softmax(logits):
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


def expected_shares(sampling):
    """(VOCAB ** 3,) the joint law of three tokens after token 0, from softmax and sets."""
    rows = softmax(TARGET / sampling.temperature)
    for row in rows:
        order = np.argsort(-row)
        kept = order[: sampling.top_k or VOCAB]
        mass = np.cumsum(row[order])
        kept = kept[: 1 + np.searchsorted(mass, sampling.top_p)] if sampling.top_p < 1 else kept
        kept = kept[row[kept] >= sampling.min_p * row.max()]
        row[np.setdiff1d(order, kept)] = 0
        row /= row.sum()
    return np.einsum("i,ij,jk->ijk", rows[0], rows, rows).ravel()


class VerdictKey(Noise):
    """Noise whose key is the one that verification gets.

    `Noise` mixes positions into its key with `^`. Under `mx.vmap` MLX reads the operand that is
    not mapped beyond its end there, so every run would have other noise.
    """

    def key_for(self, stream):
        assert stream == "verdict"
        return self.key


def one_round(key, sampling, draft_logits, chain_rule, target=TARGET):
    """Draft two tokens after token 0, then verify; return the tokens drafted and the verdict."""
    *draft_keys, verify_key = mx.random.split(key, 3)
    tokens, distributions = [mx.zeros(1, mx.int32)], []
    for draft_key in draft_keys:
        distributions.append(mx.softmax(mx.array(draft_logits)[tokens[-1]], axis=-1))
        tokens.append(draw(distributions[-1], gumbel(1, distributions[-1].shape[1], draft_key)))
    tree = DraftTree.chain(mx.concatenate(tokens))
    draft = Draft(tree, sampled_from=mx.concatenate(distributions))
    distributions = NodeDistributions(sampling, mx.array(target)[tree.tokens])
    return tree.tokens[1:], verify(draft, distributions, VerdictKey(verify_key), chain_rule)


def three_tokens(key, sampling, draft_logits, chain_rule, target=TARGET):
    """One round, then plain decoding up to three tokens."""
    key, *plain_keys = mx.random.split(key, 3)
    drafted, verdict = one_round(key, sampling, draft_logits, chain_rule, target)
    behind = [verdict.bonus_token]
    for plain_key in plain_keys:
        distributions = NodeDistributions(sampling, mx.array(target)[behind[-1][None]])
        behind.append(distributions.draw(gumbel(*distributions.logits.shape, plain_key))[0])
    place, num_accepted = mx.arange(3), verdict.accepted.sum() - 1
    accepted = mx.pad(drafted, (0, 1))
    behind = mx.stack(behind)[mx.maximum(place - num_accepted, 0)]
    return mx.where(place < num_accepted, accepted, behind)


@each_value(drafter=DRAFTERS, sampling=SAMPLING, chain_rule=["block", "token"])
def test_sampled_chains_leave_the_joint_law_of_three_tokens(drafter, sampling, chain_rule):
    keys = mx.random.split(mx.random.key(11), N_DRAWS)
    draws = mx.vmap(
        lambda key: three_tokens(key, SAMPLING[sampling], DRAFTERS[drafter], chain_rule)
    )(keys)
    cells = np.array(draws) @ [VOCAB**2, VOCAB, 1]
    shares = np.bincount(cells, minlength=VOCAB**3) / N_DRAWS
    expected = expected_shares(SAMPLING[sampling])
    assert shares[expected == 0].sum() == 0
    mass = expected > 0
    chi_square = N_DRAWS * ((shares - expected)[mass] ** 2 / expected[mass]).sum()
    freedom = mass.sum() - 1
    assert chi_square < freedom + 5 * np.sqrt(2 * freedom)


@pytest.mark.parametrize("chain_rule", ["block", "token"])
def test_rejecting_and_replacing_use_independent_noise(chain_rule):
    """A chain of 2 over 2 tokens: both noises have one shape, so one key would give one noise."""
    target, draft = np.log([[0.6, 0.4], [0.3, 0.7]]), np.log([[0.2, 0.8], [0.5, 0.5]])
    keys, sampling = mx.random.split(mx.random.key(13), N_DRAWS), SamplingParams(temperature=1.0)
    draws = mx.vmap(lambda key: three_tokens(key, sampling, draft, chain_rule, target))(keys)
    shares = np.bincount(np.array(draws) @ [4, 2, 1], minlength=8) / N_DRAWS
    p = np.exp(target)
    expected = np.einsum("i,ij,jk->ijk", p[0], p, p).ravel()
    assert N_DRAWS * ((shares - expected) ** 2 / expected).sum() < 30


def test_the_rule_for_chains_is_the_one_asked_for():
    keys = mx.random.split(mx.random.key(12), N_DRAWS)
    means = {}
    for rule in ("block", "token"):
        verdicts = mx.vmap(
            lambda key, r=rule: (
                one_round(key, SamplingParams(temperature=1.0), OTHER, r)[1].accepted
            )
        )
        means[rule] = verdicts(keys).astype(mx.float32).sum(axis=1).mean().item() - 1
    p, q = softmax(TARGET), softmax(OTHER)
    shared = np.minimum(p, q)
    by_token = shared[0].sum() + shared[0] @ shared.sum(axis=1)  # of one token, then of both
    assert abs(means["token"] - by_token) < 5 * np.sqrt(1 / N_DRAWS)
    # Both rules judge the same drafts with the same uniforms; the exact gain is 0.041.
    assert means["block"] - means["token"] > 0.02
