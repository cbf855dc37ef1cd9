"""The rule for what rounding may decide."""

import pytest

from mlxspec.trace.difference import Difference, near_tie_of


@pytest.mark.parametrize(
    ("gap", "near_tie", "expected"),
    [
        (0.2, 0.25, True),
        (0.25, 0.25, True),
        (0.3, 0.25, False),
        (None, 0.25, False),  # one of the two replies is over
        (0.0, 1e-9, True),
        (0.0, 0.0, False),  # another choice between equal logits, where nothing drifts
    ],
)
def test_only_a_gap_within_roundings_is_a_near_tie(gap, near_tie, expected):
    found = Difference(0, 1, 2, gap, near_tie)
    assert found.is_near_tie is expected
    assert found.verdict.startswith("a near-tie" if expected else "NOT A NEAR-TIE")


def test_two_logits_move_against_each_other_and_twice_as_far_in_another_text():
    assert near_tie_of(0.5) == 2.0
