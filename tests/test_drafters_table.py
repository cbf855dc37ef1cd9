"""The table drafter against values worked out by hand, and its file against damage."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import save_file

from mlxspec.draft import RoundOutcome
from mlxspec.drafters.table import TableDrafter
from mlxspec.drafters.table_rows import LearnedRows, extend, pack, shorten, unpack
from mlxspec.errors import MlxspecError, VocabularyMismatchError
from tests.drafting import KEY, LAW, assert_valid, path_probs, reply, shape_of

REPEATABLE = settings(derandomize=True, database=None, deadline=None)
VOCAB = 100
TOKENS = st.integers(0, VOCAB - 1)


def learned(*texts, **settings):
    """A drafter that has read texts of (token, row that followed it)."""
    drafter = TableDrafter(**settings)
    for text in texts:
        rows = [row for _, row in text]
        drafter.learn_text(
            [token for token, _ in text],
            [list(row) for row in rows],
            [[*row.values()] for row in rows],
        )
    return drafter


def after(drafter, *tokens):
    return drafter.next_probs(extend(0, *tokens))


# After "7 8 9" the target said 1; after "6 8 9" 2; after "5 9" 3 and 1.
NONE = {}
TEXTS = (
    [(7, NONE), (8, NONE), (9, {1: 0.8})],
    [(6, NONE), (8, NONE), (9, {2: 0.6})],
    [(4, NONE), (5, NONE), (9, {3: 0.5, 1: 0.1})],
)


def test_interpolates_contexts_of_three_two_and_one_tokens():
    # Occurrences: "7 8 9" once, "8 9" twice, "9" three times; a row of c takes c / (c + 1).
    probs = after(learned(*TEXTS, kept=1.0), 7, 8, 9)
    one = {1: 0.9 / 3, 2: 0.6 / 3, 3: 0.5 / 3}
    two = {1: 0.8 / 2, 2: 0.6 / 2, 3: 0}
    three = {1: 0.8, 2: 0, 3: 0}
    for token in (1, 2, 3):
        lower = 2 / 3 * two[token] + 1 / 3 * (3 / 4 * one[token])
        assert probs[token] == pytest.approx(1 / 2 * three[token] + 1 / 2 * lower)


def test_leaves_an_unknown_context_to_a_shorter_one():
    probs = after(learned(*TEXTS, kept=1.0), 50, 51, 9)
    assert probs == pytest.approx({1: 3 / 4 * 0.3, 2: 3 / 4 * 0.2, 3: 3 / 4 * 0.5 / 3})


def test_knows_nothing_after_an_unknown_token():
    assert after(learned(*TEXTS), 7, 8, 50) == {}


def test_weighs_later_occurrences_more_unless_told_to_keep_all():
    texts = [(1, {2: 0.8})], [(1, {3: 0.8})]
    even, recent, latest = (after(learned(*texts, kept=kept), 1) for kept in (1.0, 0.5, 0.0))
    assert even[2] == pytest.approx(even[3])
    assert recent[3] == pytest.approx(2 * recent[2])
    assert 2 not in latest


@REPEATABLE
@given(st.lists(st.integers(0, 2**21 - 2), min_size=3, max_size=9))
def test_a_context_packs_the_last_three_tokens(tokens):
    context = extend(0, *tokens)
    for order in (1, 2, 3):
        expected = np.array([tokens[-order:]])
        assert shorten(context, order) == pack(expected)[0]
        assert unpack(pack(expected), order).tolist() == expected.tolist()


def test_a_text_that_begins_is_not_one_that_goes_on_from_token_zero():
    assert extend(0, 5) != extend(0, 0, 5) != extend(0, 0, 0, 5)


def outcome(tokens, parents, path, bonus, rows):
    return RoundOutcome(
        tokens, parents, path, bonus, [[token] for token in rows], [[0.9] for _ in rows]
    )


def test_learns_from_rejected_nodes_in_the_context_of_their_path():
    #  3 -> 4 -> 5 (accepted), 3 -> 6 -> 7 (rejected)
    drafter = TableDrafter()
    drafter.start([1, 2, 3], LAW, KEY)
    drafter.update(outcome([3, 4, 6, 5, 7], [-1, 0, 0, 1, 2], [0, 1, 3], 8, [4, 5, 70, 8, 80]))
    assert after(drafter, 3, 6, 7)[80] == pytest.approx(0.9 * 7 / 8)  # 1/2 + 1/4 + 1/8
    assert after(drafter, 2, 3, 6)[70] == pytest.approx(0.9 * 7 / 8)
    assert after(drafter, 1, 2, 3)[4] == pytest.approx(0.9 * 7 / 8)
    assert after(drafter, 2, 3, 4)[5] == pytest.approx(0.9 * 7 / 8)


def test_goes_on_from_the_accepted_path_and_the_bonus_token():
    drafter = TableDrafter()
    drafter.start([1, 2, 3], LAW, KEY)
    drafter.update(outcome([3, 4, 6, 5], [-1, 0, 0, 1], [0, 1, 3], 8, [4, 5, 70, 8]))
    assert drafter.cursor(8).context == extend(0, 4, 5, 8)


def test_takes_the_bonus_token_of_a_round_without_a_draft():
    drafter = TableDrafter()
    drafter.start([1, 2, 3], LAW, KEY)
    drafter.update(outcome([3], [-1], [0], 9, [9]))
    assert drafter.cursor(9).context == extend(0, 2, 3, 9)


def test_draws_the_tree_of_the_likeliest_paths():
    # Seen once at all three lengths, a row counts 7/8: 2 has .70, 3 has .35, 4 after 2 has .52.
    drafter = learned([(1, {2: 0.8, 3: 0.4}), (2, {4: 0.6}), (4, NONE)])
    drafter.start([1], LAW, KEY)
    tokens, parents, _ = shape_of(drafter.propose(1, 3))
    assert (tokens, parents) == ([1, 2, 4, 3], [-1, 0, 1, 0])


def test_proposes_nothing_without_a_past():
    drafter = TableDrafter()
    drafter.start([1, 2], LAW, KEY)
    assert shape_of(drafter.propose(2, 8)) == ([2], [-1], [])


def test_keeps_what_it_learned_for_the_next_conversation():
    drafter = TableDrafter()
    reply(drafter, [1, 2], [1, 1, 1])
    drafter.start([50, 1], LAW, KEY)
    assert shape_of(drafter.propose(1, 1))[0] == [1, 1]


def test_drops_rows_seen_once_before_others_and_old_before_new():
    rows = LearnedRows(max_rows=4, kept=1.0)
    for context in (1, 2, 2, 3, 4, 5):
        rows.learn(context, [7], [0.5])
    assert set(rows) == {2, 5}


def test_cuts_a_wide_row_to_its_most_probable_tokens():
    rows = LearnedRows(max_rows=4, kept=1.0)
    for first in range(0, 80, 8):
        rows.learn(1, range(first, first + 8), [0.01] * 8)
        rows.learn(1, [99], [0.9])
    assert len(rows.get(1).masses) <= 40
    assert rows.get(1).masses[99] == pytest.approx(9.0)


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"max_rows": 0}, "1 or more, not 0"), ({"kept": 1.5}, "from 0 to 1, not 1.5")],
)
def test_refuses_settings_out_of_range(settings, message):
    with pytest.raises(ValueError, match=message):
        TableDrafter(**settings)


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


@REPEATABLE
@given(
    st.lists(
        st.tuples(
            st.lists(st.integers(0, 3), min_size=1, max_size=6),
            st.lists(st.integers(0, 3), max_size=20),
        ),
        max_size=4,
    ),
    st.integers(0, 9),
)
def test_every_tree_is_valid_best_first_and_the_same_again(turns, budget):
    first, second = TableDrafter(max_rows=5), TableDrafter(max_rows=5)
    for prompt, text in turns:
        drafts = reply(first, prompt, text, budget=budget)
        again = reply(second, prompt, text, budget=budget)
        assert list(map(shape_of, drafts)) == list(map(shape_of, again))
        for draft in drafts:
            assert_valid(draft, shape_of(draft)[0][0], budget)
            probs = path_probs(draft)
            assert probs == sorted(probs, reverse=True)
