"""How wide the trees of a batch are: what promises the most tokens per second, by hand."""

import pytest

from mlxspec.batch.open import BatchSettings
from mlxspec.batch.width import WidthChoice
from mlxspec.budget import CostCurve
from mlxspec.drafts.draft import Draft
from mlxspec.drafts.round import Round

FLAT = {1: 10.0, 64: 10.0}  # rows cost nothing
STEEP = {1: 10.0, 2: 20.0, 64: 640.0}  # two rows cost twice as much as one


def chain(*probs, is_known=True):
    n = len(probs)
    paths = list(probs) if is_known else None
    return Draft.from_lists(range(n + 1), range(-1, n), ["x"] * n, probs, paths)


def nodes(drafts):
    return [draft.tree.n_nodes - 1 for draft in drafts]


@pytest.mark.parametrize(
    ("ms", "expected"),
    [
        (None, [3, 2, 0]),
        (FLAT, [3, 2, 0]),
        (STEEP, [0, 0, 0]),
        # Two rows each give 1 + (0.9 + 0.6) / 3 tokens for 13 ms, one row gives 1 for 10 ms;
        # a third adds (0.5 + 0.1) / 3 for 6 ms.
        ({1: 1.0, 3: 10.0, 6: 13.0, 9: 19.0, 12: 25.0}, [1, 1, 0]),
        ({1: 1.0, 3: 10.0, 6: 13.0, 9: 13.5, 12: 25.0}, [2, 2, 0]),
    ],
)
def test_all_trees_are_cut_to_the_width_that_pays(ms, expected):
    drafts = [chain(0.9, 0.5, 0.1), chain(0.6, 0.1), chain()]
    assert nodes(WidthChoice(ms and CostCurve(ms)).cut(drafts)) == expected


def test_drafts_of_unknown_worth_are_left_as_they_are():
    drafts = [chain(0.9, 0.5), chain(0.6, is_known=False)]
    assert nodes(WidthChoice(CostCurve(STEEP)).cut(drafts)) == [2, 1]


def test_a_sequence_that_drafts_nothing_hides_the_worth_of_no_other():
    assert nodes(WidthChoice(CostCurve(STEEP)).cut([chain(0.1), Draft.empty(3)])) == [0, 0]


def rounds(choice, drafts, *, ms, is_right):
    """Verify drafts again and again; returns how many nodes are left at the end."""
    for _ in range(100):
        cut = choice.cut(drafts)
        rounds = [round_of(draft, is_right) for draft in cut]
        num_rows = sum(draft.tree.n_nodes for draft in cut)
        choice.learn(rounds, num_rows, ms[num_rows])
    return nodes(choice.cut(drafts))


def round_of(draft, is_right):
    tokens, parents = draft.tree.tokens.tolist(), draft.tree.parents.tolist()
    path = range(len(tokens)) if is_right else [0]
    return Round(tokens, parents, path, len(path) if is_right else 99)


@pytest.mark.parametrize(("ms", "expected"), [(10.0, [1, 1]), (90.0, [0, 0])])
def test_what_rounds_take_is_learned(ms, expected):
    choice = WidthChoice(CostCurve({1: 10.0, 2: 10.0, 4: 10.0}))
    found = rounds(choice, [chain(0.9), chain(0.9)], ms={2: 10.0, 4: ms}, is_right=True)
    assert found == expected


@pytest.mark.parametrize(("is_right", "expected"), [(True, [1, 1]), (False, [0, 0])])
def test_what_drafts_are_worth_is_learned(is_right, expected):
    choice = WidthChoice(CostCurve({1: 10.0, 2: 10.0, 4: 14.0}))
    found = rounds(choice, [chain(0.5), chain(0.5)], ms={2: 10.0, 4: 14.0}, is_right=is_right)
    assert found == expected


@pytest.mark.parametrize(
    ("rows", "sequences", "expected"), [(1, 4, 0), (32, 1, 31), (32, 5, 5), (32, 32, 0), (8, 9, 0)]
)
def test_rows_are_shared_equally(rows, sequences, expected):
    assert BatchSettings(rows_per_round=rows).nodes_each(sequences) == expected
