"""The draft tree against a drawing read by eye and against a walk up the parents."""

import mlx.core as mx
import pytest
from hypothesis import given
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


def test_depths_of_the_drawing():
    tree = DraftTree.from_lists(TOKENS, PARENTS)
    assert tree.depths.tolist() == [0, 1, 1, 2, 2]
    assert tree.depths.dtype == mx.int32


def test_ancestors_of_the_drawing():
    tree = DraftTree.from_lists(TOKENS, PARENTS)
    assert tree.ancestors.dtype == mx.bool_
    assert tree.ancestors.astype(mx.int32).tolist() == [
        [1, 0, 0, 0, 0],
        [1, 1, 0, 0, 0],
        [1, 0, 1, 0, 0],
        [1, 1, 0, 1, 0],
        [1, 1, 0, 0, 1],
    ]


def test_tokens_and_parents_are_kept_as_int32():
    tree = DraftTree.from_lists(TOKENS, PARENTS)
    assert (tree.tokens.tolist(), tree.parents.tolist()) == (TOKENS, PARENTS)
    assert (tree.tokens.dtype, tree.parents.dtype) == (mx.int32, mx.int32)
    assert tree.n_nodes == 5


@given(parent_lists())
def test_ancestors_are_what_a_walk_up_the_parents_meets(parents):
    ancestors = DraftTree.from_lists(list(range(len(parents))), parents).ancestors.tolist()
    for node, row in enumerate(ancestors):
        assert {i for i, seen in enumerate(row) if seen} == set(walk_up(parents, node))


@given(parent_lists())
def test_a_depth_is_the_number_of_steps_to_the_root(parents):
    depths = DraftTree.from_lists(list(range(len(parents))), parents).depths.tolist()
    assert depths == [len(list(walk_up(parents, node))) - 1 for node in range(len(parents))]


@pytest.mark.parametrize("n_nodes", [1, 2, 3, 4, 5, 8, 9, 17, 64, 65])
def test_a_chain_has_every_earlier_node_above(n_nodes):
    tree = DraftTree.chain(mx.arange(n_nodes, dtype=mx.int32))
    assert tree.parents.tolist() == list(range(-1, n_nodes - 1))
    assert tree.depths.tolist() == list(range(n_nodes))
    assert tree.ancestors.tolist() == [[j <= i for j in range(n_nodes)] for i in range(n_nodes)]


def test_a_root_alone_is_a_tree():
    tree = DraftTree.from_lists([3], [-1])
    assert (tree.n_nodes, tree.depths.tolist(), tree.ancestors.tolist()) == (1, [0], [[True]])


def test_a_tree_of_lazy_parents_is_the_same():
    lazy = DraftTree(mx.array(TOKENS) + 0, mx.array([0, 1, 1, 2, 2], mx.int32) - 1)
    assert lazy.depths.tolist() == [0, 1, 1, 2, 2]


@pytest.mark.parametrize("parents", [[-1, 1, 0], [-1, 2, 0], [-1, 0, 2], [-1, 0, 3]])
def test_rejects_a_child_before_its_parent(parents):
    with pytest.raises(ValueError, match="allowed are 0 to"):
        DraftTree.from_lists([0, 1, 2], parents)


def test_rejects_a_second_root():
    with pytest.raises(ValueError, match="node 2 has parent -1; allowed are 0 to 1"):
        DraftTree.from_lists([0, 1, 2], [-1, 0, -1])


@pytest.mark.parametrize("parent", [0, 1, -2])
def test_rejects_a_first_node_that_is_not_the_root(parent):
    with pytest.raises(ValueError, match="has parent -1, not"):
        DraftTree.from_lists([0, 1], [parent, 0])


@pytest.mark.parametrize(("tokens", "parents"), [([0, 1], [-1]), ([0], [-1, 0]), ([], [])])
def test_rejects_lists_that_do_not_pair_up(tokens, parents):
    with pytest.raises(ValueError, match="one parent per token"):
        DraftTree.from_lists(tokens, parents)


def test_rejects_two_siblings_with_one_token():
    with pytest.raises(ValueError, match="siblings"):
        DraftTree.from_lists([0, 7, 8, 7], [-1, 0, 0, 0])


def test_cousins_may_hold_the_same_token_as_each_other_and_as_the_root():
    tree = DraftTree.from_lists([7, 7, 8, 7, 7], [-1, 0, 0, 1, 2])
    assert tree.depths.tolist() == [0, 1, 1, 2, 2]
