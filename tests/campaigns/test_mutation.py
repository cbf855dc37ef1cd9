"""The list of seeded faults does not rot: every one of them can still be seeded."""

import ast
from collections import Counter
from dataclasses import replace
from functools import cache

from tests.campaigns.mutation import ROOT, Rows, known_faults

FAULTS = known_faults()


@cache
def text_of(path):
    return (ROOT / path).read_text(encoding="utf-8")


def can_be_seeded(fault):
    """Whether the text to replace stands in the file once, and the file is Python afterwards."""
    before, *after = text_of(fault.path).split(fault.old)
    if len(after) != 1 or fault.new == fault.old:
        return False
    # To parse the definition around it is enough, and takes a fifth of the time.
    start, end = before.rpartition("\n\n\n")[2], after[0].partition("\n\n\n")[0]
    texts = (start + fault.new + end, before + fault.new + after[0])
    return not fault.path.endswith(".py") or any(map(is_python, texts))


def is_python(text):
    try:
        ast.parse(text)
    except SyntaxError:
        return False
    return True


def is_there(test):
    path, *names = test.split("::")
    return all(f"def {name.partition('[')[0]}(" in text_of(path) for name in names)


def test_what_a_fault_replaces_stands_there_exactly_once():
    assert [fault.name for fault in FAULTS if not can_be_seeded(fault)] == []


def test_the_tests_that_have_to_notice_a_fault_are_there():
    assert [fault.name for fault in FAULTS if not fault.tests] == []
    lost = {test for fault in FAULTS for test in fault.tests if not is_there(test)}
    assert sorted(lost) == []


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
