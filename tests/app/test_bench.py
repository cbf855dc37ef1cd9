"""The bench runs the real app in a process of its own, and reports what it measured."""

import pytest

from mlxspec_app.bench.__main__ import machine, measure, row, summary
from mlxspec_app.bench.measure import Case


@pytest.mark.parametrize("headless", [True, False])
def test_an_update_has_a_cost_with_and_without_a_terminal(headless):
    figures = measure(Case(tokens=40, above=4), headless=headless)
    assert len(figures) == 10
    assert min(figures) > 0


def test_a_summary_has_quarters_and_their_ratio():
    figures = [1.0] * 250 + [2.0] * 500 + [3.0] * 250
    found = summary(Case(), figures)
    assert found["quarters"] == [1.0, 2.0, 2.0, 3.0]
    assert found["last_to_first"] == 3.0
    assert (found["at_500"], found["at_4000"]) == (1.0, 3.0)
    assert "3.00" in row(found)
    assert {"python", "textual", "system"} <= set(machine())


def test_frames_beside_busy_threads_are_told_by_how_late_they_are():
    found = summary(Case(measures="lateness"), [1.0] * 99 + [50.0])
    assert row(found).split()[-2:] == ["1.0", "49.5"]
