"""The chi-square test against printed tables and sums made by hand."""

import random

import pytest

from mlxspec.measure.chi_square import Fit, fit, pooled, survival

# Upper percentage points, from the table that every textbook of statistics prints.
TABLE = [
    (3.841, 1, 0.05),
    (10.828, 1, 0.001),
    (5.991, 2, 0.05),
    (2.558, 10, 0.99),
    (29.588, 10, 0.001),
    (43.773, 30, 0.05),
    (149.449, 100, 0.001),
]


@pytest.mark.parametrize(("chi_square", "freedom", "prob"), TABLE)
def test_the_tail_is_that_of_the_tables(chi_square, freedom, prob):
    assert survival(chi_square, freedom) == pytest.approx(prob, rel=1e-3)


def test_the_ends_of_the_tail():
    assert survival(0.0, 7) == 1
    assert survival(0.0, 0) == 1
    assert survival(1e7, 8) == 0
    assert survival(2000.0, 2000) == pytest.approx(0.496, abs=1e-3)  # no power overflows


def test_the_statistic_is_that_of_a_coin_by_hand():
    found = fit("a" * 30 + "b" * 20, {"a": 0.5, "b": 0.5})
    assert found == Fit(num_draws=50, chi_square=2.0, freedom=1)
    assert found.p_value == pytest.approx(0.1573, abs=1e-4)
    assert found + Fit(20, 2.5, 3) == Fit(70, 4.5, 4)


def test_rare_cells_are_pooled_until_enough_is_expected():
    probs = {"a": 0.6, "b": 0.3, "c": 0.06, "d": 0.02, "e": 0.02}
    assert pooled(probs, 1000) == [["a"], ["b"], ["c"], ["d"], ["e"]]
    assert pooled(probs, 200) == [["a"], ["b"], ["c"], ["d", "e"]]
    assert pooled(probs, 100) == [["a"], ["b"], ["c", "d", "e"]]
    assert pooled(probs, 20) == [["a"], ["b", "c", "d", "e"]]
    assert pooled(probs, 6) == pooled(probs, 1) == [["a", "b", "c", "d", "e"]]
    pairs = [["a", "b"], ["c", "d"], ["e", "f"], ["g", "h"]]
    assert pooled(dict.fromkeys("abcdefgh", 1 / 8), 20) == pairs


def test_pooled_draws_are_counted_together():
    probs = {"a": 0.5, "b": 0.3, "c": 0.1, "d": 0.1}
    found = fit("a" * 20 + "b" * 12 + "c" * 8, probs)  # c and d together: 8 of 8 expected
    assert (found.chi_square, found.freedom) == (0.0, 2)


def test_p_values_of_true_draws_are_uniform_and_of_false_ones_small():
    chance = random.Random(3)
    true, false = {"a": 0.5, "b": 0.3, "c": 0.2}, {"a": 0.4, "b": 0.4, "c": 0.2}

    def p_value(probs):
        draws = chance.choices(list(true), true.values(), k=400)
        return fit(draws, probs).p_value

    honest = sorted(p_value(true) for _ in range(200))
    assert max(abs(p - (i + 0.5) / 200) for i, p in enumerate(honest)) < 0.14  # Kolmogorov, 0.001
    assert max(p_value(false) for _ in range(20)) < 0.2
    assert sum(p_value(false) < 1e-3 for _ in range(20)) > 10
