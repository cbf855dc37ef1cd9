"""What a table learned earlier: sums by hand, the file, and processes that write it at once."""

import json
import multiprocessing
import stat
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors import safe_open

from mlxspec.drafters.table import memory as table_memory
from mlxspec.drafters.table.drafter import TableDrafter
from mlxspec.drafters.table.file import save_table
from mlxspec.drafters.table.memory import TableMemory, add_up, summed
from mlxspec.drafters.table.rows import LearnedRows, extend
from mlxspec.drafts.round import Round
from tests.support.drafting import KEY, SAMPLING, after, shape_of, stored_rows

VOCAB = 300
ONE = extend(0, 9)
(EMPTY,) = stored_rows({})


def memory_at(path, **settings):
    return TableMemory(path, VOCAB, **settings)


def taught(path, *rows, context=(7, 8, 9)):
    """A memory that saw a context as often as there are rows of {token: probability}."""
    memory = memory_at(path)
    for row in rows:
        memory.learn([extend(0, *context)], [list(row)], [list(row.values())])
    return memory


def row_of(memory, *context):
    parts = [of_order[len(context) - 1] for of_order in (memory.kept, memory.new)]
    found = [row for part in parts if (row := part.get(extend(0, *context))) is not None]
    return summed(found) if found else None


def mean_of(row):
    return {token: mass / row.occurrences for token, mass in row.masses.items()}


# ---- sums ----------------------------------------------------------------------------------


ROWS = st.dictionaries(
    st.integers(0, 5), st.lists(st.floats(0.05, 0.3), min_size=1, max_size=3), max_size=6
)


@given(st.lists(ROWS, max_size=5))
def test_kept_rows_are_the_mean_of_all_occurrences(runs):
    kept, seen = EMPTY, {}
    for run in runs:
        new = LearnedRows(99, 1.0)
        for token, probs in run.items():
            for prob in probs:
                new.learn(extend(0, token), [3, 4], [prob, prob / 2])
                seen.setdefault(token, []).append(prob)
        kept = add_up(kept, new, 1)
    assert list(kept) == sorted(extend(0, token) for token in seen)
    for token, probs in seen.items():
        row = kept.get(extend(0, token))
        assert row.occurrences == len(probs)
        means = {3: np.mean(probs), 4: np.mean(probs) / 2}
        assert mean_of(row) == pytest.approx(means, abs=0.01)


def test_what_came_up_lately_stays_when_there_is_no_room(monkeypatch):
    monkeypatch.setattr(table_memory, "MAX_ROWS", (4, 4, 4))
    (kept,) = stored_rows({(token,): (token, {1: 0.25}) for token in (1, 2, 3, 8)})
    new = LearnedRows(9, 1.0)
    for token in (8, 20, 21):
        new.learn(extend(0, token), [1], [0.25])
    left = add_up(kept, new, 1)  # 1, 2, 3 occurrences are halved once: 0, 1, 1; and again
    counts = {context - 1: left.get(context).occurrences for context in left}
    assert counts == {8: 9, 20: 1, 21: 1}
    assert len(add_up(kept, LearnedRows(9, 1.0), 1)) == 4
    for token in (30, 30, 31):
        new.learn(extend(0, token), [1], [0.25])
    assert set(add_up(EMPTY, new, 1)) >= {extend(0, 30)}  # seen twice
    assert len(add_up(EMPTY, new, 1)) == 4


# ---- the file ------------------------------------------------------------------------------


def test_a_later_run_goes_on_from_what_was_learned(tmp_path):
    path = tmp_path / "sub" / "t.safetensors"
    taught(path, {1: 0.64, 2: 0.16}, {1: 0.36}).save()
    again = memory_at(path)
    for context in ((9,), (8, 9), (7, 8, 9)):
        assert row_of(again, *context).occurrences == 2
        assert mean_of(row_of(again, *context)) == pytest.approx({1: 0.5, 2: 0.08}, abs=0.005)


def test_saving_twice_counts_nothing_twice(tmp_path):
    path = tmp_path / "t.safetensors"
    memory = taught(path, {1: 0.5})
    memory.save()
    written = path.read_bytes()
    memory.save()
    assert path.read_bytes() == written
    assert row_of(memory, 9).occurrences == 1


def _learn_and_save(path, token):
    memory = taught(path, {1: 0.5}, context=(token,))
    for _ in range(5):
        memory.learn([ONE], [[1]], [[0.5]])
        memory.save()


def test_processes_that_write_at_once_lose_nothing(tmp_path):
    path = tmp_path / "t.safetensors"
    # A process that has asked for Apple's GPU must not fork; elsewhere that is ten times as fast.
    context = multiprocessing.get_context("spawn" if sys.platform == "darwin" else "fork")
    writers = [context.Process(target=_learn_and_save, args=(path, 20 + n)) for n in range(3)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(60)
    found = memory_at(path, say=pytest.fail)
    assert row_of(found, 9).occurrences == 15
    assert [row_of(found, 20 + n).occurrences for n in range(3)] == [1, 1, 1]


def test_the_file_is_for_its_owner_alone(tmp_path):
    path = tmp_path / "sub" / "t.safetensors"
    (tmp_path / "sub").mkdir()
    path.with_name(path.name + ".part").touch(0o644)
    taught(path, {1: 0.5}).save()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [entry.name for entry in path.parent.iterdir() if entry.suffix == ".part"] == []


def _foreign(path):
    save_table(path, stored_rows({}, {}, {}), VOCAB + 1)


def _damaged(path):
    taught(path, {1: 0.5}).save()
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def _later(path):
    taught(path, {1: 0.5}).save()
    with safe_open(path, framework="np") as file:
        config = json.loads(file.metadata()["config"])
    assert config["layout"] == 2
    path.write_bytes(path.read_bytes().replace(b'\\"layout\\": 2', b'\\"layout\\": 9'))


@pytest.mark.parametrize(
    ("spoil", "word"),
    [
        (_foreign, "tokenizer"),
        (_damaged, "checksum"),
        (_later, "not a table that this version can read"),
        (lambda path: path.write_bytes(b"no table"), "cannot read"),
        (lambda path: path.mkdir(), "cannot read"),
    ],
)
def test_a_file_of_no_use_costs_one_line(tmp_path, spoil, word):
    path, said = tmp_path / "t.safetensors", []
    spoil(path)
    memory = memory_at(path, say=said.append)
    assert len(said) == 1
    assert said[0].startswith("warning: what the table learned before is not used")
    assert word in said[0]
    assert row_of(memory, 9) is None


def test_a_file_of_no_use_is_replaced(tmp_path):
    path = tmp_path / "t.safetensors"
    _damaged(path)
    taught(path, {1: 0.5}).save()
    assert row_of(memory_at(path, say=pytest.fail), 9).occurrences == 1


def test_a_folder_that_takes_no_file_costs_one_line_and_nothing_learned(tmp_path):
    (tmp_path / "file").touch()
    said = []
    memory = memory_at(tmp_path / "file" / "t.safetensors", say=said.append)
    memory.learn([ONE], [[1]], [[0.5]])
    memory.save()
    assert len(said) == 1
    assert "cannot be kept" in said[0]
    assert row_of(memory, 9).occurrences == 1


def test_saves_now_and_then(tmp_path, monkeypatch):
    path, now = tmp_path / "t.safetensors", [0.0]
    monkeypatch.setattr(table_memory.time, "monotonic", lambda: now[0])
    drafter = TableDrafter(memory=taught(path, {1: 0.5}))
    for seconds, is_there in ((10.0, False), (301.0, True)):
        now[0] = seconds
        drafter.start([1, 2], SAMPLING, KEY)
        assert path.exists() == is_there


# ---- the drafter ---------------------------------------------------------------------------


def test_drafts_from_what_earlier_runs_learned(tmp_path):
    drafter = TableDrafter(memory=taught(tmp_path / "t", {1: 0.8}, {1: 0.4}))
    drafter.start([7, 8, 9], SAMPLING, KEY)
    assert shape_of(drafter.propose(9, 1))[0] == [9, 1]
    left = (3 / 5) ** 3  # a row of two occurrences takes 2 / (2 + 3) of what is left
    assert after(drafter, 7, 8, 9) == pytest.approx({1: (1 - left) * 0.6})


def test_a_memory_adds_to_the_counts_of_stored_rows(tmp_path):
    stored = stored_rows({(9,): (2, {1: 0.36})}, {}, {})
    drafter = TableDrafter(stored, memory=taught(tmp_path / "t", {2: 0.8}, context=(9,)))
    # Three occurrences in all: 3 / (3 + 3); two and three tokens were never seen before.
    assert after(drafter, 5, 5, 9) == pytest.approx({1: 0.5 * 0.24, 2: 0.5 * 0.8 / 3}, abs=0.002)


def test_teaches_its_memory_every_verified_node(tmp_path):
    memory = memory_at(tmp_path / "t")
    drafter = TableDrafter(memory=memory)
    drafter.start([1, 2, 3], SAMPLING, KEY)
    drafter.update(Round([3, 4, 6], [-1, 0, 0], [0, 1], 5, [[4], [5], [70]], [[0.9]] * 3))
    assert row_of(memory, 2, 3, 6).masses == {70: 0.9}
    assert row_of(memory, 3, 4).masses == {5: 0.9}


def test_a_memory_outlives_the_conversation(tmp_path):
    drafter = TableDrafter(memory=memory_at(tmp_path / "t"))
    drafter.start([1, 2], SAMPLING, KEY)
    drafter.update(Round([2], [-1], [0], 4, [[4]], [[0.8]]))
    assert after(drafter, 1, 2)[4] > 0.75 * 0.8
    # A row of this conversation weighs 1/2, of another one 1/4.
    drafter.start([1, 3], SAMPLING, KEY)
    assert after(drafter, 1, 2)[4] == pytest.approx(0.8 * (1 - (3 / 4) ** 3))


def test_what_came_before_the_text_had_begun_is_not_kept_wrongly(tmp_path):
    path = tmp_path / "t.safetensors"
    memory = taught(path, {1: 0.5}, context=(9,))  # one token: contexts of two and three are none
    memory.learn([extend(0, 7, 8, 9)], [[2]], [[0.5]])
    memory.save()
    later = memory_at(path, say=pytest.fail)
    assert row_of(later, 8, 9).occurrences == 1
    assert row_of(later, 9).occurrences == 2
    assert list(map(len, later.kept)) == [1, 1, 1]
