"""Shapes of drawn trees, written out by hand, and within every budget."""

import mlx.core as mx
import pytest

from mlxspec.drafts.shape import TreeShape


def test_a_shape_written_out():
    #      0
    #    1   2
    #   3 4 5 6
    #   7 8 9 10
    shape = TreeShape((2, 2, 1))
    assert shape.parents == [-1, 0, 0, 1, 1, 2, 2, 3, 4, 5, 6]
    assert shape.children == [[1, 2], [3, 4], [5, 6], [7], [8], [9], [10], [], [], [], []]
    assert [list(level) for level in shape.levels] == [[0], [1, 2], [3, 4, 5, 6], [7, 8, 9, 10]]
    assert not shape.is_chain


def test_its_tree_is_as_large_as_the_tokens_are_many():
    shape = TreeShape((2, 1))
    for count in (1, 3, 5):
        tree = shape.tree(mx.arange(count, dtype=mx.int32))
        assert tree.parents.tolist() == [-1, 0, 0, 1, 2][:count]
        assert tree.num_levels >= tree.depths.max().item() + 1


@pytest.mark.parametrize(
    ("budget", "depth", "branching", "widths"),
    [
        (1, 5, None, (1,)),
        (4, 5, None, (1, 1, 1, 1)),
        (9, 5, None, (1, 1, 1, 1, 1)),
        (10, 5, None, (2, 1, 1, 1, 1)),
        (15, 5, None, (3, 1, 1, 1, 1)),
        (60, 5, None, (3, 1, 1, 1, 1)),
        (3, 1, None, (3,)),
        (12, 2, None, (3, 1)),
        (12, 2, 5, (5, 1)),
        (12, 4, 1, (1, 1, 1, 1)),
    ],
)
def test_a_budget_is_spent_on_length_first_and_then_on_width(budget, depth, branching, widths):
    shape = TreeShape.for_budget(budget, depth, branching)
    assert shape.widths == widths
    assert len(shape.parents) - 1 <= budget
    assert shape.is_chain == (set(widths) == {1})
