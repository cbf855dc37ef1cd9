"""Sampled chains, exactly: the rules as functions of their uniforms, integrated over them.

For every chain that the draft law can produce, the places where a uniform turns the verdict are
found by bisection on the rule itself. They cut the cube of uniforms into boxes in which the
verdict is constant; its law is the sum over chains, boxes and bonus tokens.
"""

from collections import Counter
from dataclasses import dataclass
from functools import cache
from itertools import product
from math import prod

import mlx.core as mx
import numpy as np
import pytest

from mlxspec.verify.rules import block_rule, token_rule
from tests.support.exact_distribution import DISTRIBUTION_PAIRS, ContextDistributions
from tests.support.pairwise import each_value, pairwise

RULES = {"token": token_rule, "block": block_rule}
TOP = 1 - 2.0**-24  # the largest uniform


class SameDistribution(ContextDistributions):
    """One law after every context."""

    def __init__(self, weights):
        super().__init__(0)
        self._law = [weight / sum(weights) for weight in weights]

    def __call__(self, context):
        return self._law


CASES = DISTRIBUTION_PAIRS | {
    "equal distributions with zeros": (
        ContextDistributions(14, zeros=True),
        ContextDistributions(14, zeros=True),
    ),
    "disjoint supports": (SameDistribution([1, 0, 2]), SameDistribution([0, 1, 0])),
    "a certain draft": (SameDistribution([3, 5, 2]), SameDistribution([0, 1, 0])),
    "a certain target": (SameDistribution([0, 0, 1]), SameDistribution([1, 3, 4])),
    "nearly equal": (SameDistribution([1000, 2000, 3001]), SameDistribution([1001, 1999, 3001])),
}


@dataclass
class Chains:
    """All chains of n tokens that the draft law can produce, and a rule at work on them."""

    rule: str
    p: ContextDistributions
    q: ContextDistributions
    n: int

    def __post_init__(self):
        self.chains = [c for c in self.p.sequences(self.n) if self.q.prob(c) > 0]
        places = range(self.n + 1)
        p_rows = [[[float(x) for x in self.p(c[:i])] for i in places] for c in self.chains]
        q_rows = [[[float(x) for x in self.q(c[:i])] for i in places[:-1]] for c in self.chains]
        self._arrays = mx.array(self.chains, mx.int32), mx.array(p_rows), mx.array(q_rows)

    def __call__(self, uniforms):
        """Return the accepted numbers (K, N) and bonus laws (K, N, V) under (K, N, n) uniforms."""
        k = len(uniforms)
        flat = mx.array(uniforms.reshape(-1, self.n), mx.float32)
        arrays = [mx.concatenate([array] * k) for array in self._arrays]
        verdict = mx.vmap(RULES[self.rule])(*arrays, flat)
        return [np.array(x).reshape(k, -1, *x.shape[1:]) for x in verdict]

    def thresholds(self):
        """(N, n) where each uniform turns the verdict; 1 where it has no say."""
        shape = (2, self.n, len(self.chains))  # the others at 0 or TOP, place, chain
        low, high = np.zeros(shape), np.full(shape, TOP)
        first, last = self._accepted(low), self._accepted(high)
        for _ in range(26):
            middle = (low + high) / 2
            is_first = self._accepted(middle) == first
            low, high = np.where(is_first, middle, low), np.where(is_first, high, middle)
        found = np.where(first == last, np.nan, high)
        # With the others at their lowest and at their highest it is the same place, if any.
        both = ~np.isnan(found).any(axis=0)
        np.testing.assert_allclose(found[0][both], found[1][both], atol=1e-6)
        return np.nan_to_num(np.where(np.isnan(found[0]), found[1], found[0]), nan=1.0).T

    def _accepted(self, at):
        """(2, n, N) numbers accepted with one uniform `at` a value and the others at 0 or TOP."""
        uniforms = np.zeros((*at.shape, self.n)) + np.array([0.0, TOP])[:, None, None, None]
        for place in range(self.n):
            uniforms[:, place, :, place] = at[:, place]
        return self(uniforms.reshape(-1, *uniforms.shape[2:]))[0].reshape(at.shape)

    def boxes(self):
        """Yield (weights (N,), accepted (N,), bonus laws (N, V)) of each box of the uniforms."""
        edges = self.thresholds()
        for is_above in product((False, True), repeat=self.n):
            weights = np.where(is_above, 1 - edges, edges).prod(axis=1)
            start, end = np.where(is_above, edges, 0), np.where(is_above, 1, edges)
            corners = np.stack([start + share * (end - start) for share in (0.01, 0.99)])
            accepted, bonus = self(corners)
            is_wide = weights > 1e-4
            np.testing.assert_array_equal(accepted[0][is_wide], accepted[1][is_wide])
            yield weights, accepted[0], bonus[0]

    def law(self):
        """{tokens of a round: probability} over all chains, boxes of uniforms and bonus tokens."""
        found = Counter()
        probs = [float(self.q.prob(chain)) for chain in self.chains]
        for weights, accepted, bonus in self.boxes():
            parts = zip(self.chains, probs * weights, accepted, bonus, strict=True)
            for chain, mass, kept, row in parts:
                for token in np.flatnonzero(row):
                    found[(*chain[:kept], int(token))] += mass * float(row[token])
        return found


@cache
def measured(rule, case, n):
    return Chains(rule, *CASES[case], n).law()


def mean_accepted(rule, case, n):
    return sum(prob * (len(said) - 1) for said, prob in measured(rule, case, n).items())


@each_value(rule=RULES, case=CASES, n=[1, 2, 3])
def test_a_sampled_chain_leaves_the_joint_law_exactly(rule, case, n):
    p = CASES[case][0]
    distribution = p.continued(measured(rule, case, n), n + 1)
    assert sum(distribution.values()) == pytest.approx(1, abs=1e-6)
    for tokens, prob in p.joint(n + 1).items():
        assert float(distribution[tokens]) == pytest.approx(float(prob), abs=1e-6)


@pytest.mark.parametrize("rule", RULES)
def test_the_verdict_on_many_chains_at_once_is_that_on_each(rule):
    chains = Chains(rule, *CASES["full supports"], 3)
    uniforms = np.random.default_rng(0).random((1, len(chains.chains), 3))
    accepted, bonus = chains(uniforms)
    for row in range(len(chains.chains)):
        arrays = [array[row] for array in chains._arrays]
        verdict = RULES[rule](*arrays, mx.array(uniforms[0, row], mx.float32))
        assert verdict[0].item() == accepted[0, row]
        np.testing.assert_allclose(verdict[1], bonus[0, row], atol=1e-6)


def prefixes(case, n):
    """Yield, for each prefix of 1 to n tokens, its (p, q) at every place."""
    p, q = CASES[case]
    for length in range(1, n + 1):
        for tokens in p.sequences(length):
            yield [
                (float(p(tokens[:i])[token]), float(q(tokens[:i])[token]))
                for i, token in enumerate(tokens)
            ]


@each_value(case=CASES, n=[1, 2, 3])
def test_the_token_rule_accepts_what_both_laws_share(case, n):
    """A prefix stays with the product of min(p, q) over its places (Leviathan et al. 2023)."""
    expected = sum(prod(min(pair) for pair in places) for places in prefixes(case, n))
    assert mean_accepted("token", case, n) == pytest.approx(expected, abs=1e-6)


@each_value(case=CASES, n=[1, 2, 3])
def test_the_block_rule_accepts_all_that_blocks_allow_and_no_less_than_the_token_rule(case, n):
    """A prefix x stays with q(x) w(x), w = min(1, w p/q) along it (Sun et al. 2024)."""
    expected = 0.0
    for places in prefixes(case, n):
        weight = 1.0
        for p, q in places:
            weight = min(1.0, weight * p / q) if q else 0.0
        expected += weight * prod(q for _, q in places)
    assert mean_accepted("block", case, n) == pytest.approx(expected, abs=1e-6)
    assert mean_accepted("block", case, n) >= mean_accepted("token", case, n) - 1e-6


# ---- edges ---------------------------------------------------------------------------------


def one_token(rule, p, q, uniform, token=0):
    """The number accepted and the bonus law after one drafted token; p is its place's law."""
    rows = mx.array([p, [0.2, 0.3, 0.5]])
    verdict = RULES[rule](mx.array([token]), rows, mx.array([q]), mx.array([uniform]))
    return verdict[0].item(), verdict[1].tolist()


@pytest.mark.parametrize("rule", RULES)
def test_a_token_without_mass_is_rejected_by_a_uniform_of_zero(rule):
    accepted, bonus = one_token(rule, [0.0, 0.5, 0.5], [1.0, 0.0, 0.0], 0.0)
    assert (accepted, bonus) == (0, [0.0, 0.5, 0.5])


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("uniform", [0.0, 0.3, TOP])
def test_a_token_that_the_draft_law_cannot_produce_is_rejected_and_replaced_from_p(rule, uniform):
    accepted, bonus = one_token(rule, [0.5, 0.5, 0.0], [0.0, 0.0, 1.0], uniform)
    assert (accepted, bonus) == (0, [0.5, 0.5, 0.0])


@pairwise(p=[[0.4, 0.6, 0.0], [0.9, 0.1, 0.0]], uniform=[0.0, 0.3, TOP], rule=RULES)
def test_a_token_no_less_probable_than_drafted_is_always_accepted(rule, p, uniform):
    accepted, bonus = one_token(rule, p, [0.4, 0.2, 0.4], uniform)
    assert accepted == 1
    assert bonus == pytest.approx([0.2, 0.3, 0.5])


@pytest.mark.parametrize("rule", RULES)
def test_half_the_mass_is_accepted_half_the_time(rule):
    p, q = [0.25, 0.75, 0.0], [0.5, 0.25, 0.25]
    assert one_token(rule, p, q, 0.49)[0] == 1
    accepted, bonus = one_token(rule, p, q, 0.51)
    assert (accepted, bonus) == (0, [0.0, 1.0, 0.0])


@pytest.mark.parametrize("rule", RULES)
def test_a_residual_without_mass_falls_back_to_p(rule):
    """Where rounding rejects a token although p nowhere exceeds q."""
    p, q = [0.5 - 2**-24, 0.5 - 2**-24, 0.0], [0.5, 0.5, 0.0]
    accepted, bonus = one_token(rule, p, q, TOP)
    assert (accepted, bonus) == (0, pytest.approx(p))


@pytest.mark.parametrize("rule", RULES)
def test_no_sum_of_a_law_turns_into_nan_where_q_is_tiny(rule):
    rows = mx.array([[0.0, 1.0, 0.0], [0.5, 0.5, 0.0], [0.2, 0.3, 0.5]])
    q = mx.array([[1e-38, 0.5, 0.5], [1e-38, 0.5, 0.5]])
    accepted, bonus = RULES[rule](mx.array([0, 0]), rows, q, mx.array([0.0, 0.0]))
    assert (accepted.item(), bonus.tolist()) == (0, [0.0, 1.0, 0.0])
