"""The list of seeded faults does not rot: every one of them can still be seeded."""

from collections import Counter
from dataclasses import replace

import pytest

from tests.campaigns.mutation import ROOT, Rows, known_faults

FAULTS = known_faults()


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_what_a_fault_replaces_stands_there_exactly_once(fault):
    text = (ROOT / fault.path).read_text(encoding="utf-8")
    assert text.count(fault.old) == 1
    assert fault.new != fault.old
    if fault.path.endswith(".py"):
        compile(text.replace(fault.old, fault.new), fault.path, "exec")


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_the_tests_that_have_to_notice_a_fault_are_there(fault):
    assert fault.tests
    for test in fault.tests:
        path, *names = test.split("::")
        text = (ROOT / path).read_text(encoding="utf-8")
        assert all(f"def {name.partition('[')[0]}(" in text for name in names)


def test_every_fault_has_a_name_of_its_own():
    assert set(Counter(fault.name for fault in FAULTS).values()) == {1}


def test_rows_are_kept_of_faults_that_are_still_the_same(tmp_path):
    path = tmp_path / "rows.jsonl"
    first, second = FAULTS[:2]
    Rows(path).add(first, "test_a.py::test_it", "1.5")
    Rows(path).add(second, "", "2.0")
    rows = Rows(path)
    assert [fault in rows for fault in FAULTS[:3]] == [True, True, False]
    assert rows[first] == ("test_a.py::test_it", "1.5")
    assert rows[second] == ("", "2.0")
    assert replace(first, new="pass") not in rows
    assert replace(first, tests=()) not in rows
