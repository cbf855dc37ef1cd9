"""Of a drawn tree, a target without trees gets the first path: that leaves its law, exactly.

Every tree that can be drawn is cut; the rule judges what is left of it, with the rows of q that the
cut draft states. Sums are made as in `test_traversal`.
"""

from collections import Counter

import mlx.core as mx
import numpy as np
import pytest

from mlxspec.drafts.draft import Draft
from mlxspec.drafts.shape import TreeShape
from mlxspec.drafts.tree import DraftTree
from mlxspec.verify.rules import match_rule
from mlxspec.verify.traversal import traverse
from tests.support.exact_distribution import DISTRIBUTION_PAIRS
from tests.verify.test_traversal import children_of, drafts


def drawn(q, shape, paths):
    """The draft of a drawn tree, with the rows of q behind its nodes with children."""
    nodes = [(), *paths]
    inner = [node for node, below in zip(nodes, shape.children, strict=True) if below]
    tree = shape.tree(mx.array([0, *(path[-1] for path in paths)], mx.int32))
    rows = mx.array([[float(x) for x in q(node)] for node in inner])
    return Draft(tree, ("drawn",) * len(paths), sampled_from=rows, branching=shape)


def law_of_cut_drafts(p, q, widths):
    """{tokens of a round: probability} over all trees that can be drawn, each cut to a chain."""
    found = Counter()
    for weight, paths in drafts(q, widths):
        cut = drawn(q, TreeShape(widths), paths).first_path()
        tokens = cut.tree.tokens.tolist()
        assert cut.tree.parents.tolist() == list(range(-1, len(widths)))
        assert cut.branching is None
        contexts = [tuple(tokens[1:end]) for end in range(1, len(tokens) + 1)]
        p_rows = mx.array([[float(x) for x in p(context)] for context in contexts])
        chain = children_of((1,) * len(widths))
        order, left = traverse(cut.tree.tokens, chain, p_rows, cut.sampled_from), float(weight)
        for node, chance, bonus in zip(order.nodes, order.chances, order.bonus_probs, strict=True):
            for token, prob in enumerate(np.array(bonus)):
                found[(*contexts[node], token)] += left * chance.item() * float(prob)
            left *= 1 - chance.item()
    return found


CASES = [
    *((case, (3, 1)) for case in DISTRIBUTION_PAIRS),
    ("full supports", (2,)),
    ("zeros in both", (2, 2)),
    ("full supports", (2, 1, 1)),
]


@pytest.mark.parametrize(("case", "widths"), CASES, ids=str)
def test_the_first_path_of_a_drawn_tree_leaves_the_joint_law_exactly(case, widths):
    p, q = DISTRIBUTION_PAIRS[case]
    joint = p.continued(law_of_cut_drafts(p, q, widths), len(widths) + 1)
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
