"""Which tests are slow: the lines of the file name tests, and a sampled product has its pairs."""

import math
from itertools import combinations, product

import pytest

from tests.support.pairwise import covering, each_value, pairwise
from tests.support.paths import TESTS
from tests.support.slow import is_slow, lines


def test_every_line_names_a_test():
    named = [name.split("::") for name in lines()]
    lost = [
        f"{file}::{function}"
        for file, function in named
        if f"def {function}(" not in (TESTS / file).read_text(encoding="utf-8")
    ]
    assert lost == []


@pytest.mark.parametrize(
    ("parameters", "slow"), [("[1-pool-full]", False), ("[3-pool-full]", True), ("[6-x]", True)]
)
def test_a_pattern_chooses_by_the_parameters(parameters, slow):
    name = "tests/engine/test_held.py::test_a_held_reply_goes_on_after_others_were_written"
    assert is_slow(name + parameters) is slow


def assert_has_every_choice(rows, sizes, strength):
    for axes in combinations(range(len(sizes)), strength):
        wanted = set(product(*(range(sizes[axis]) for axis in axes)))
        assert {tuple(row[axis] for axis in axes) for row in rows} == wanted


@pytest.mark.parametrize("sizes", [[3, 1, 2], [2, 5, 3, 4], [21, 8, 4]], ids=str)
@pytest.mark.parametrize("strength", [1, 2])
def test_a_covering_array_has_every_choice_of_values_in_some_row(sizes, strength):
    rows = covering(sizes, strength)
    assert_has_every_choice(rows, sizes, strength)
    assert len(rows) <= 1.4 * max(math.prod(axes) for axes in combinations(sizes, strength))
    assert rows == covering(sizes, strength)


@pytest.mark.parametrize(("sample", "num_quick"), [(pairwise, 6), (each_value, 3)])
def test_a_sampled_product_of_two_axes_is_whole_and_what_is_not_needed_is_slow(sample, num_quick):
    mark = sample(number=[1, 2, 3], word=["a", pytest.param("b", id="second")])
    _, rows = mark.args
    assert [row.values for row in rows] == list(product([1, 2, 3], ["a", "b"]))
    assert [row.id for row in rows[:2]] == ["1-a", "1-second"]
    assert sum(not row.marks for row in rows) == num_quick


@pytest.mark.parametrize(("sample", "strength"), [(pairwise, 2), (each_value, 1)])
def test_of_more_axes_the_slow_rows_add_what_one_value_more_needs(sample, strength):
    _, rows = sample(a=range(4), b=range(3), c=range(2), d=range(3)).args
    quick = [row.values for row in rows if not row.marks]
    assert_has_every_choice(quick, [4, 3, 2, 3], strength)
    assert_has_every_choice([row.values for row in rows], [4, 3, 2, 3], strength + 1)
    assert len(quick) < len(rows) < 4 * 3 * 2 * 3
