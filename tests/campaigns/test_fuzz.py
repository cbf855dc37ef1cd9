"""Hostile files of every kind, a few of each; `python -m tests.campaigns.fuzz` tries thousands.

What a reader may do with them: refuse them with an error of ours, or read them, and that in little
time and memory.
"""

import json
from random import Random

import pytest

from tests.campaigns.fuzz import TARGETS, fuzz, main, table
from tests.campaigns.fuzz_damage import damaged_json

INPUTS = 20


@pytest.fixture(scope="module")
def tallies():
    return fuzz(list(TARGETS), INPUTS, seed=0)


@pytest.mark.parametrize("name", TARGETS)
def test_hostile_files_are_refused_or_read(tallies, name):
    assert tallies[name].failures == []
    assert tallies[name].inputs == INPUTS


@pytest.mark.parametrize("name", TARGETS)
def test_some_files_are_refused_so_they_are_hostile(tallies, name):
    assert tallies[name].refused > 0


SICK = {
    "raises": "tests.support.sick_readers:Raises",
    "crashes": "tests.support.sick_readers:Crashes",
    "allocates": "tests.support.sick_readers:Allocates",
    "says nothing": "tests.support.sick_readers:SaysNothing",
}


@pytest.fixture(scope="module")
def sick():
    with pytest.MonkeyPatch.context() as patch:
        for name, path in SICK.items():
            patch.setitem(TARGETS, name, path)
        yield fuzz(list(SICK), 3, seed=0)


@pytest.mark.parametrize("name", SICK)
def test_a_sick_reader_is_found_and_the_inputs_after_it_are_tried(sick, name):
    tally = sick[name]
    assert (tally.inputs, tally.refused, tally.read) == (3, 1, 1)
    (failure,) = tally.failures
    assert failure.startswith(f"{name} 1 ")
    assert f"{name:12}       3        1      1         1" in table({name: tally})


def test_an_input_can_be_tried_again_by_its_number(monkeypatch, capsys):
    monkeypatch.setitem(TARGETS, "raises", SICK["raises"])
    assert main(["--target", "raises", "--first", "1", "--inputs", "1"]) == 1
    assert "FAILED raises 1 " in capsys.readouterr().out


def test_the_same_seed_makes_the_same_inputs():
    content = json.dumps({"a": [1, {"b": "c"}]}).encode()
    first, again = (
        [damaged_json(content, Random(f"5 {index}")) for index in range(50)] for _ in range(2)
    )
    assert first == again
    assert len({data for _, data in first}) > 25
