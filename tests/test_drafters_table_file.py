"""The file of a table: nothing lost that should be there, nothing read that is damaged."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import save_file

from mlxspec.drafters.table import TableDrafter
from mlxspec.drafters.table_rows import extend
from mlxspec.errors import MlxspecError, VocabularyMismatchError
from tests.drafting import TEXTS, after, learned

REPEATABLE = settings(derandomize=True, database=None, deadline=None)
VOCAB = 100
TOKENS = st.integers(0, VOCAB - 1)


ROWS = st.dictionaries(TOKENS, st.floats(0.01, 0.12), min_size=1, max_size=4)
CORPUS = st.lists(st.lists(st.tuples(st.integers(0, 3), ROWS), max_size=12), max_size=4)


@REPEATABLE
@given(CORPUS)
def test_a_file_holds_every_row_that_was_seen_again(tmp_path_factory, corpus):
    path = tmp_path_factory.mktemp("table") / "rows.safetensors"
    drafter = learned(*corpus, kept=1.0)
    drafter.save(path, VOCAB)
    loaded = TableDrafter.load(path, VOCAB)
    for order, (rows, stored) in enumerate(loaded._rows, 1):
        assert len(rows) == 0
        before = drafter._learned[order - 1]
        full_contexts = {c for c in before if c >> 21 * (order - 1)}
        assert set(stored) == {
            c for c in full_contexts if order == 1 or before.get(c).occurrences > 1
        }
        for context in stored:
            row, saved = before.get(context), stored.get(context)
            assert saved.occurrences == row.occurrences
            for token, mass in saved.masses.items():
                # The square root is kept to half of 1/255.
                assert (mass / row.occurrences) ** 0.5 == pytest.approx(
                    (row.masses[token] / row.occurrences) ** 0.5, abs=0.51 / 255
                )
            kept = sorted(row.masses.values(), reverse=True)[: 16 if order == 1 else 4]
            assert len(saved.masses) == len(kept)


def test_saves_loaded_and_learned_rows_together(tmp_path):
    path = tmp_path / "rows.safetensors"
    learned([(1, {2: 0.64})], [(1, {2: 0.64})], kept=1.0).save(path, VOCAB)
    drafter = TableDrafter.load(path, VOCAB)
    drafter.learn_text([1, 3], [[2], [4]], [[0.04], [0.25]])
    drafter.save(path, VOCAB)
    _, stored = TableDrafter.load(path, VOCAB)._rows[0]
    row = stored.get(extend(0, 1))
    assert row.occurrences == 3
    assert row.masses[2] / 3 == pytest.approx((2 * 0.64 + 0.04) / 3, abs=0.005)
    assert set(stored) == {extend(0, 1), extend(0, 3)}


def test_asks_learned_rows_before_loaded_ones(tmp_path):
    path = tmp_path / "rows.safetensors"
    learned([(1, {2: 0.64})], kept=1.0).save(path, VOCAB)
    drafter = TableDrafter.load(path, VOCAB)
    drafter.learn_text([1], [[3]], [[0.8]])
    # The learned row takes a half, and, as a text began with it, so at all three lengths.
    probs = after(drafter, 50, 51, 1)
    assert probs[3] == pytest.approx(0.8 / 2)
    assert probs[2] == pytest.approx(0.64 / 4, abs=0.002)


def test_writes_the_same_rows_to_the_same_bytes(tmp_path):
    for name in ("a", "b"):
        learned(*TEXTS).save(tmp_path / name, VOCAB)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


@pytest.mark.parametrize("vocab_size", [1 << 16, (1 << 16) + 1])
def test_keeps_the_largest_token_of_a_vocabulary(tmp_path, vocab_size):
    path, last = tmp_path / "rows.safetensors", vocab_size - 1
    learned([(last, {last: 0.9})]).save(path, vocab_size)
    assert list(after(TableDrafter.load(path, vocab_size), last)) == [last]


@pytest.fixture
def table_file(tmp_path):
    path = tmp_path / "rows.safetensors"
    learned(*TEXTS).save(path, VOCAB)
    return path


def test_refuses_the_table_of_another_vocabulary(table_file):
    with pytest.raises(VocabularyMismatchError, match=r"rows.safetensors.* 100 tokens.* 101"):
        TableDrafter.load(table_file, VOCAB + 1)


@REPEATABLE
@given(st.integers(0, 10_000), st.integers(1, 255))
def test_refuses_a_file_with_any_byte_changed(tmp_path_factory, place, change):
    path = tmp_path_factory.mktemp("table") / "rows.safetensors"
    learned(*TEXTS).save(path, VOCAB)
    content = bytearray(path.read_bytes())
    content[place % len(content)] ^= change
    path.write_bytes(content)
    with pytest.raises(MlxspecError, match=r"rows\.safetensors"):
        TableDrafter.load(path, VOCAB)


@pytest.mark.parametrize("size", [0, 7, 200, -1])
def test_refuses_a_file_cut_short(table_file, size):
    table_file.write_bytes(table_file.read_bytes()[:size])
    with pytest.raises(MlxspecError, match=r"rows\.safetensors"):
        TableDrafter.load(table_file, VOCAB)


def test_refuses_a_file_of_weights(tmp_path):
    save_file({"weight": np.zeros(3)}, tmp_path / "model.safetensors")
    with pytest.raises(MlxspecError, match=r"model\.safetensors is not a table"):
        TableDrafter.load(tmp_path / "model.safetensors", VOCAB)


def test_refuses_a_file_that_is_not_there(tmp_path):
    with pytest.raises(MlxspecError, match=r"cannot read the table .*nowhere"):
        TableDrafter.load(tmp_path / "nowhere", VOCAB)


def test_says_so_when_a_file_cannot_be_written(tmp_path):
    with pytest.raises(MlxspecError, match=r"cannot write the table .*missing"):
        learned(*TEXTS).save(tmp_path / "missing" / "rows.safetensors", VOCAB)


def test_an_old_file_survives_a_failed_save(table_file, monkeypatch):
    before = table_file.read_bytes()

    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr("mlxspec.drafters.table_file.os.replace", fail)
    with pytest.raises(MlxspecError, match="disk full"):
        TableDrafter().save(table_file, VOCAB)
    assert table_file.read_bytes() == before
    assert list(table_file.parent.iterdir()) == [table_file]
