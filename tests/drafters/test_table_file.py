"""The file of a table: nothing lost that should be there, nothing read that is damaged."""

import json
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.numpy import save_file

from mlxspec.drafters.table.drafter import TableDrafter
from mlxspec.drafters.table.file import load_table, row_bytes, save_table
from mlxspec.drafters.table.rows import extend
from mlxspec.errors import MlxspecError, VocabularyMismatchError
from tests.support.drafting import stored_rows

EXAMPLES = settings(max_examples=50)
VOCAB = 100
TOKENS = st.integers(0, VOCAB - 1)
ENTRIES = st.dictionaries(TOKENS, st.floats(0.01, 0.12), min_size=1, max_size=4)
TABLE = stored_rows(
    {(9,): (3, {1: 0.3, 2: 0.2}), (8,): (2, {9: 1.0})},
    {(8, 9): (2, {1: 0.4})},
    {(7, 8, 9): (2, {})},
)


@EXAMPLES
@given(
    st.tuples(
        *(
            st.dictionaries(
                st.tuples(*[TOKENS] * order), st.tuples(st.integers(1, 255), ENTRIES), max_size=5
            )
            for order in (1, 2, 3)
        )
    )
)
def test_a_file_holds_every_row(tmp_path_factory, tables):
    path = tmp_path_factory.mktemp("table") / "rows.safetensors"
    save_table(path, stored_rows(*tables), VOCAB)
    for table, loaded in zip(tables, load_table(path, VOCAB), strict=True):
        assert set(loaded) == {extend(0, *context) for context in table}
        for context, (count, probs) in table.items():
            row = loaded.get(extend(0, *context))
            assert row.occurrences == count
            assert set(row.masses) == set(probs)
            for token, prob in probs.items():
                # The square root is kept to half of 1/255.
                assert (row.masses[token] / count) ** 0.5 == pytest.approx(
                    prob**0.5, abs=0.51 / 255
                )


@pytest.mark.parametrize("vocab_size", [VOCAB, 70_000])
def test_says_how_many_bytes_a_row_takes(tmp_path, vocab_size):
    sizes = []
    for count in (0, 1000):
        table = {(token,): (1, {1: 0.5, 2: 0.25}) for token in range(count)}
        path = tmp_path / str(count)
        save_table(path, stored_rows(table, {}, {}), vocab_size)
        sizes.append(path.stat().st_size)
    expected = 1000 * row_bytes(1, 2, vocab_size)
    assert sizes[1] - sizes[0] == pytest.approx(expected, abs=160)  # longer numbers in the header


def test_says_what_it_is_in_the_metadata_of_every_trained_drafter(table_file):
    with safe_open(table_file, framework="np") as file:
        metadata = file.metadata()
    config = json.loads(metadata["config"])
    assert (metadata["format"], metadata["kind"]) == ("mlxspec-drafter", "table")
    assert json.loads(metadata["card"]) == {"target": {"name": "tiny"}}
    assert (config["vocab_size"], config["tokenizer"]) == (VOCAB, "abc")
    assert config["rows"] == [2, 1, 1]


@pytest.mark.parametrize("vocab_size", [1 << 16, (1 << 16) + 1])
def test_keeps_the_largest_token_of_a_vocabulary(tmp_path, vocab_size):
    path, last = tmp_path / "rows.safetensors", vocab_size - 1
    save_table(path, stored_rows({(last,): (1, {last: 0.9})}, {}, {}), vocab_size)
    drafter = TableDrafter(load_table(path, vocab_size))
    assert list(drafter.next_probs(extend(0, last))) == [last]


@pytest.fixture
def table_file(tmp_path):
    path = tmp_path / "rows.safetensors"
    save_table(path, TABLE, VOCAB, tokenizer="abc", card={"target": {"name": "tiny"}})
    return path


@pytest.mark.parametrize(
    ("vocab_size", "tokenizer", "message"),
    [
        (VOCAB + 1, "", r"rows.safetensors.* 100 tokens.* 101"),
        (VOCAB, "abd", "use the table of this target"),
    ],
)
def test_refuses_the_table_of_another_tokenizer(table_file, vocab_size, tokenizer, message):
    with pytest.raises(VocabularyMismatchError, match=message):
        load_table(table_file, vocab_size, tokenizer=tokenizer)
    assert load_table(table_file, VOCAB, tokenizer="abc")[0].get(extend(0, 9))


@EXAMPLES
@given(st.integers(0, 10_000), st.integers(0, 7))
def test_refuses_a_file_with_any_bit_flipped(tmp_path_factory, place, bit):
    path = tmp_path_factory.mktemp("table") / "rows.safetensors"
    save_table(path, TABLE, VOCAB, card={"tokens": 3})
    content = bytearray(path.read_bytes())
    content[place % len(content)] ^= 1 << bit
    path.write_bytes(content)
    with pytest.raises(MlxspecError, match=r"rows\.safetensors"):
        load_table(path, VOCAB)


@pytest.mark.parametrize("size", [0, 7, 200, -1])
def test_refuses_a_file_cut_short(table_file, size):
    table_file.write_bytes(table_file.read_bytes()[:size])
    with pytest.raises(MlxspecError, match=r"rows\.safetensors"):
        load_table(table_file, VOCAB)


def test_tells_a_table_of_an_earlier_version_to_be_made_again(tmp_path):
    facts = {"table": json.dumps({"format": "mlxspec-table/1", "vocab_size": VOCAB})}
    save_file({"1.counts": np.zeros(0, np.uint8)}, tmp_path / "old.safetensors", facts)
    with pytest.raises(MlxspecError, match=r"old.safetensors is not a table.*mlxspec train table"):
        load_table(tmp_path / "old.safetensors", VOCAB)


def test_an_old_file_survives_a_failed_save(table_file, monkeypatch):
    before = table_file.read_bytes()

    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr("mlxspec.drafters.table.file.os.replace", fail)
    with pytest.raises(MlxspecError, match="disk full"):
        save_table(table_file, TABLE, VOCAB)
    assert table_file.read_bytes() == before
    assert list(table_file.parent.iterdir()) == [table_file]


# ---- rows that do not fit each other, under a sum that is right ---------------------------------


def rewritten(path, arrays):
    """Write other arrays into a table, with the sum that its description asks for."""
    with safe_open(path, framework="np") as file:
        metadata = file.metadata()
        whole = {name: file.get_tensor(name) for name in file.keys()} | arrays  # noqa: SIM118
    whole = {name: array for name, array in whole.items() if array is not None}
    config = json.loads(metadata["config"])
    del config["crc32"]
    value = zlib.crc32((json.dumps(config, sort_keys=True) + metadata["card"]).encode())
    for name, array in sorted(whole.items()):
        value = zlib.crc32(f"{name} {array.dtype} {array.shape}".encode(), value)
        value = zlib.crc32(array.tobytes(), value)
    save_file(whole, path, metadata | {"config": json.dumps(config | {"crc32": value})})


@pytest.mark.parametrize(
    "arrays",
    [
        {"1.tokens": None},
        {"1.tokens": np.array([1, 2, VOCAB], np.uint16)},
        {"1.tokens": np.array([1, 2], np.uint16)},
        {"1.tokens": np.array([1, 2, 3], np.int64)},
        {"1.sizes": np.array([1, 1], np.uint8)},
        {"1.sizes": np.array([[1, 2]], np.uint8)},
        {"1.sizes": np.array([-1, 4], np.int64)},
        {"1.contexts": np.array([[9], [8]], np.uint16)},
        {"1.contexts": np.array([[8], [VOCAB]], np.uint16)},
        {"1.contexts": np.array([8, 9], np.uint16)},
        {"1.counts": np.array(1, np.uint8)},
        {"1.roots": np.array([0.5, 0.5, 0.5])},
        {"2.contexts": np.array([[8, 9], [9, 9]], np.uint16)},
    ],
    ids=str,
)
def test_refuses_rows_that_do_not_fit_each_other(table_file, arrays):
    rewritten(table_file, arrays)
    with pytest.raises(
        MlxspecError, match=r"rows\.safetensors is damaged: its arrays of order [12]"
    ):
        load_table(table_file, VOCAB)


def test_refuses_types_of_numbers_that_numpy_does_not_have(table_file):
    content = table_file.read_bytes()
    for other in (b"F8_E4M3", b"BF16"):
        end = 8 + int.from_bytes(content[:8], "little")
        header = content[8:end].replace(b'"U8"', b'"' + other + b'"').ljust(end)
        if other == b"BF16":
            header = header.replace(b'"shape": [2]', b'"shape": [1]')
        table_file.write_bytes(len(header).to_bytes(8, "little") + header + content[end:])
        with pytest.raises(MlxspecError, match=r"rows\.safetensors"):
            load_table(table_file, VOCAB)
