"""The draft tree against a drawing read by eye and against a walk up the parents."""

import mlx.core as mx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlxspec.drafts.tree import DraftTree

# The drawing in tree.py: The -> (cat -> (sat, ran), dog).
TOKENS, PARENTS = [10, 11, 12, 13, 14], [-1, 0, 0, 1, 1]


@st.composite
def parent_lists(draw):
    """Parents of up to 20 nodes, each standing behind its parent."""
    n_nodes = draw(st.integers(1, 20))
    return [-1, *(draw(st.integers(0, node - 1)) for node in range(1, n_nodes))]


def walk_up(parents, node):
    while node >= 0:
        yield node
        node = parents[node]


def test_the_drawing():
    tree = DraftTree.from_lists(TOKENS, PARENTS)
    assert (tree.tokens.tolist(), tree.parents.tolist()) == (TOKENS, PARENTS)
    assert (tree.n_nodes, tree.depths.tolist()) == (5, [0, 1, 1, 2, 2])
    assert {array.dtype for array in (tree.tokens, tree.parents, tree.depths)} == {mx.int32}
    assert tree.ancestors.dtype == mx.bool_
    assert tree.ancestors.astype(mx.int32).tolist() == [
        [1, 0, 0, 0, 0],
        [1, 1, 0, 0, 0],
        [1, 0, 1, 0, 0],
        [1, 1, 0, 1, 0],
        [1, 1, 0, 0, 1],
    ]


@settings(max_examples=60)
@given(parent_lists())
def test_ancestors_and_depths_are_what_a_walk_up_the_parents_meets(parents):
    tree = DraftTree.from_lists(list(range(len(parents))), parents)
    walks = [set(walk_up(parents, node)) for node in range(len(parents))]
    assert [{i for i, seen in enumerate(row) if seen} for row in tree.ancestors.tolist()] == walks
    assert tree.depths.tolist() == [len(walk) - 1 for walk in walks]


@pytest.mark.parametrize("n_nodes", [1, 2, 5, 9, 64, 65])
def test_a_chain_has_every_earlier_node_above(n_nodes):
    tree = DraftTree.chain(mx.arange(n_nodes, dtype=mx.int32))
    assert tree.parents.tolist() == list(range(-1, n_nodes - 1))
    assert tree.depths.tolist() == list(range(n_nodes))
    assert tree.ancestors.tolist() == [[j <= i for j in range(n_nodes)] for i in range(n_nodes)]


def test_a_tree_of_lazy_parents_is_the_same():
    lazy = DraftTree(mx.array(TOKENS) + 0, mx.array([0, 1, 1, 2, 2], mx.int32) - 1)
    assert lazy.depths.tolist() == [0, 1, 1, 2, 2]


@pytest.mark.parametrize(
    ("tokens", "parents", "message"),
    [
        ([0, 1, 2], [-1, 1, 0], "allowed are 0 to"),
        ([0, 1, 2], [-1, 2, 0], "allowed are 0 to"),
        ([0, 1, 2], [-1, 0, 2], "allowed are 0 to"),
        ([0, 1, 2], [-1, 0, 3], "allowed are 0 to"),
        ([0, 1, 2], [-1, 0, -1], "node 2 has parent -1; allowed are 0 to 1"),
        ([0, 1], [0, 0], "has parent -1, not"),
        ([0, 1], [1, 0], "has parent -1, not"),
        ([0, 1], [-2, 0], "has parent -1, not"),
        ([0, 1], [-1], "one parent per token"),
        ([0], [-1, 0], "one parent per token"),
        ([], [], "one parent per token"),
        ([0, 7, 8, 7], [-1, 0, 0, 0], "siblings"),
    ],
)
def test_refuses_what_is_no_tree(tokens, parents, message):
    with pytest.raises(ValueError, match=message):
        DraftTree.from_lists(tokens, parents)


def test_cousins_may_hold_the_same_token_as_each_other_and_as_the_root():
    tree = DraftTree.from_lists([7, 7, 8, 7, 7], [-1, 0, 0, 1, 2])
    assert tree.depths.tolist() == [0, 1, 1, 2, 2]
