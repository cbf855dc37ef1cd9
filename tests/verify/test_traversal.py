"""Trees drawn without replacement, exactly: every draft that can be drawn, every verdict on it.

All draws of a tree are gone through in fractions. For each of them the rule gives the order in
which it judges the nodes, their chances and the laws of the bonus token, in float32; the verdicts
follow. Their sum has to be the target's own law.
"""

from collections import Counter
from fractions import Fraction
from functools import cache
from itertools import product
from math import prod

import mlx.core as mx
import numpy as np
import pytest

from mlxspec.drafts.draft import Draft
from mlxspec.drafts.shape import TreeShape
from mlxspec.drafts.tree import DraftTree
from mlxspec.verify.rules import block_rule, match_rule
from mlxspec.verify.traversal import Traversal, traversal_rule, traverse
from tests.support.exact_distribution import DISTRIBUTION_PAIRS
from tests.support.pairwise import each_value

SHAPES = [(1,), (2,), (3,), (1, 1), (2, 1), (1, 2), (2, 2), (3, 1), (2, 1, 1)]


def children_of(shape):
    """Children of every node of a tree with that many below each node of a depth."""
    children, level, count = [], [0], 1
    for width in shape:
        below = range(count, count + width * len(level))
        children += [list(below[i * width : (i + 1) * width]) for i in range(len(level))]
        level, count = list(below), count + len(below)
    return [*children, *[[] for _ in level]]


def siblings(distribution, width):
    """Yield (probability, tokens) of `width` draws from a law without replacement.

    Where the law has fewer tokens, others without mass stand for those that are missing.
    """
    support = [token for token, prob in enumerate(distribution) if prob]
    missing = [token for token in range(len(distribution)) if token not in support]
    for tokens in product(support, repeat=min(width, len(support))):
        if len(set(tokens)) == len(tokens):
            weight, left = Fraction(1), Fraction(1)
            for token in tokens:
                weight, left = weight * distribution[token] / left, left - distribution[token]
            yield weight, (*tokens, *missing)[:width]


def drafts(q, shape, level=((),)):
    """Yield (probability, paths of all nodes below these) of every tree that can be drawn."""
    if not shape:
        yield Fraction(1), []
        return
    for below in product(*(list(siblings(q(path), shape[0])) for path in level)):
        paths = [
            (*path, token)
            for path, (_, tokens) in zip(level, below, strict=True)
            for token in tokens
        ]
        weight = prod((chance for chance, _ in below), start=Fraction(1))
        for chance, rest in drafts(q, shape[1:], paths):
            yield weight * chance, [*paths, *rest]


def rows_of(law, contexts):
    return mx.array([[float(x) for x in law(context)] for context in contexts])


def inner_of(shape, nodes):
    """The nodes with children."""
    return [node for node, below in zip(nodes, children_of(shape), strict=True) if below]


def judged(p, q, shape, paths):
    """The rule's order for one draft."""
    nodes = [(), *paths]
    tokens = mx.array([0, *(path[-1] for path in paths)], mx.int32)
    rows = rows_of(p, nodes), rows_of(q, inner_of(shape, nodes))
    return traverse(tokens, children_of(shape), *rows)


def ends(order, nodes, weight):
    """Yield (probability, tokens of the round) of all verdicts on a draft of some weight."""
    left = float(weight)
    chances, laws = np.array(mx.stack(order.chances)), np.array(mx.stack(order.bonus_probs))
    for node, chance, bonus in zip(order.nodes, chances, laws, strict=True):
        for token in np.flatnonzero(bonus):
            yield left * float(chance) * float(bonus[token]), (*nodes[node], int(token))
        left *= 1 - float(chance)


@cache
def measured(case, shape):
    """Return {tokens of a round: probability}; the probabilities of all drafts are 1 in all."""
    p, q = DISTRIBUTION_PAIRS[case]
    distribution, total = Counter(), Fraction(0)
    for weight, paths in drafts(q, shape):
        total += weight
        for prob, said in ends(judged(p, q, shape, paths), [(), *paths], weight):
            distribution[said] += prob
    assert total == 1
    return distribution


def mean_accepted(case, shape):
    return sum(prob * (len(said) - 1) for said, prob in measured(case, shape).items())


@each_value(case=DISTRIBUTION_PAIRS, shape=SHAPES)
def test_a_tree_drawn_without_replacement_leaves_the_joint_law_exactly(case, shape):
    p = DISTRIBUTION_PAIRS[case][0]
    distribution = p.continued(measured(case, shape), len(shape) + 1)
    for tokens, prob in p.joint(len(shape) + 1).items():
        assert float(distribution[tokens]) == pytest.approx(float(prob), abs=2e-6)


@pytest.mark.parametrize("case", ["full supports", "zeros in both"])
def test_more_siblings_are_accepted_more_often(case):
    means = [mean_accepted(case, shape) for shape in ((1, 1), (2, 1), (3, 1))]
    assert means == pytest.approx(sorted(means), abs=1e-5)
    if case == "full supports":
        assert means[0] < means[1] - 0.01


@pytest.mark.parametrize("case", [c for c, (_, q) in DISTRIBUTION_PAIRS.items() if all(q(()))])
def test_every_token_drafted_is_one_accepted(case):
    """All tokens of the vocabulary below the root: whatever the target says is among them."""
    assert mean_accepted(case, (3,)) == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("case", ["full supports", "zeros in both", "equal distributions"])
def test_on_a_chain_it_is_the_block_rule(case):
    p, q = DISTRIBUTION_PAIRS[case]
    uniforms = np.random.default_rng(0).random((4, 3)).astype(np.float32)
    for _, paths in drafts(q, (1, 1, 1)):
        order = judged(p, q, (1, 1, 1), paths)
        tokens = mx.array(paths[-1], mx.int32)
        p_rows, q_rows = rows_of(p, [(), *paths]), rows_of(q, [(), *paths])
        for row in uniforms:
            node, bonus = traversal_rule(order, mx.array(row))
            expected = block_rule(tokens, p_rows, q_rows[:3], mx.array(row[::-1].copy()))
            assert node.item() == expected[0].item()
            np.testing.assert_allclose(bonus, expected[1], atol=1e-5)


def test_the_first_node_below_its_chance_is_accepted_and_else_the_root():
    chances, distributions = [0.5, 0.0, 0.25, 1.0], [[0.1], [0.2], [0.3], [0.4]]
    order = Traversal(
        [2, 3, 1, 0], list(map(mx.array, chances)), list(map(mx.array, distributions))
    )
    for uniforms, node in (
        ([0.4, 0.9, 0.9], 2),
        ([0.5, 0.9, 0.9], 0),
        ([0.6, 0.0, 0.2], 1),  # a chance of nothing is not taken by a uniform of 0
        ([0.0, 0.0, 0.0], 2),
    ):
        found, distribution = traversal_rule(order, mx.array(uniforms))
        assert found.item() == node
        assert distribution.tolist() == pytest.approx(distributions[order.nodes.index(node)])


# ---- what a target without trees gets of a drawn tree: its first path ---------------------------


def ends_of_cut_drafts(p, q, widths):
    """Yield (probability, tokens of the round) of all drafts, each cut to a chain."""
    shape = TreeShape(widths)
    for weight, paths in drafts(q, widths):
        tree = shape.tree(mx.array([0, *(path[-1] for path in paths)], mx.int32))
        rows = rows_of(q, inner_of(widths, [(), *paths]))
        sources = ("drawn",) * len(paths)
        cut = Draft(tree, sources, sampled_from=rows, branching=shape).first_path()
        tokens = cut.tree.tokens.tolist()
        assert cut.tree.parents.tolist() == list(range(-1, len(widths)))
        assert cut.branching is None
        nodes = [tuple(tokens[1:end]) for end in range(1, len(tokens) + 1)]
        chain = children_of((1,) * len(widths))
        order = traverse(cut.tree.tokens, chain, rows_of(p, nodes), cut.sampled_from)
        yield from ends(order, nodes, weight)


CUT = [
    *((case, (3, 1)) for case in DISTRIBUTION_PAIRS),
    ("full supports", (2,)),
    ("zeros in both", (2, 2)),
    ("full supports", (2, 1, 1)),
]


@pytest.mark.parametrize(("case", "widths"), CUT, ids=str)
def test_the_first_path_of_a_drawn_tree_leaves_the_joint_law_exactly(case, widths):
    p, q = DISTRIBUTION_PAIRS[case]
    found = Counter()
    for prob, said in ends_of_cut_drafts(p, q, widths):
        found[said] += prob
    joint = p.continued(found, len(widths) + 1)
    for tokens, prob in p.joint(len(widths) + 1).items():
        assert float(joint[tokens]) == pytest.approx(float(prob), abs=2e-6)


def test_a_guess_keeps_all_that_it_states_of_its_first_path():
    draft = Draft.from_lists(
        [9, 1, 2, 3, 4, 5],
        [-1, 0, 0, 2, 1, 4],
        ["a", "b", "c", "d", "e"],
        [0.5, 0.4, 0.3, 0.2, 0.1],
        [0.5, 0.4, 0.3, 0.2, 0.1],
    )
    cut = draft.first_path()
    assert (cut.tree.tokens.tolist(), cut.tree.parents.tolist()) == ([9, 1, 4, 5], [-1, 0, 1, 2])
    assert cut.sources == ("a", "d", "e")
    assert cut.node_probs.tolist() == pytest.approx([0.5, 0.2, 0.1])
    assert list(cut.path_probs) == [0.5, 0.2, 0.1]
    assert cut.tree.max_depth == 3
    cut.check("cut", 3, 10)


def test_a_lazy_tree_is_cut_as_its_parents_turn_out():
    parents = mx.array([-1, 0, 0, 1], mx.int32) * mx.array(1, mx.int32)
    cut = Draft(DraftTree(mx.array([3, 1, 2, 0], mx.int32), parents), ("x",) * 3).first_path()
    assert cut.tree.tokens.tolist() == [3, 1, 0]
    verdict = match_rule(cut.tree, mx.array([1, 0, 2], mx.int32))
    assert verdict.accepted.tolist() == [True, True, True]
