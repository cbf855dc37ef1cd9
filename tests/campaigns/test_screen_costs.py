"""The bench runs the real app in a process of its own, and reports what it measured."""

from tests.campaigns.screen_costs.__main__ import Case, measure, summary


def test_an_update_of_the_app_on_its_own_terminal_has_a_cost():
    figures = measure(Case(tokens=24, above=2))
    assert len(figures) == 6
    assert min(figures) > 0


def test_a_summary_has_quarters():
    found = summary(Case(), [1.0] * 250 + [2.0] * 500 + [3.0] * 250)
    assert found["quarters"] == [1.0, 2.0, 2.0, 3.0]
    assert found["p50"] == 2.0
