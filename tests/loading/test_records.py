"""The facts of this machine in one file, which several processes may write at once."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from mlxspec.loading.records import Records


def test_facts_that_are_stored_at_the_same_time_are_all_kept(home):
    """Each opens the lock itself, as processes do."""

    def store(number):
        Records("facts.json").store(str(number), {"number": number})

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(store, range(40)))
    facts = Records("facts.json")
    assert sorted(facts.all_keys(), key=int) == [str(number) for number in range(40)]
    assert facts.load("7") == {"number": 7}


@pytest.mark.parametrize("content", ["", "{", "[1]", '{"a": 5}', "\xff"])
def test_a_damaged_file_is_begun_anew(home, content):
    home.mkdir()
    (home / "facts.json").write_text(content, encoding="latin-1")
    facts = Records("facts.json")
    assert facts.load("a") is None
    facts.store("a", {"b": 2})
    assert facts.load("a") == {"b": 2}


def test_a_file_that_cannot_be_written_leaves_nothing_behind(home):
    (home / "facts.json").mkdir(parents=True)
    facts = Records("facts.json")
    facts.store("a", {"b": 2})
    assert facts.load("a") is None
    assert {path.name for path in home.iterdir()} == {"facts.json", "facts.lock"}


def test_a_cache_folder_that_is_a_file_is_done_without(home):
    home.write_text("in the way")
    facts = Records("facts.json")
    facts.store("a", {"b": 2})
    assert facts.load("a") is None
    facts.clear()
    assert home.read_text() == "in the way"
