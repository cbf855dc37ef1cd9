"""The table drafter against values worked out by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlxspec.drafters.table.drafter import TableDrafter
from mlxspec.drafters.table.rows import LearnedRows, extend, pack, shorten, unpack
from mlxspec.drafts.round import Round
from tests.support.drafting import (
    KEY,
    SAMPLING,
    TEXTS,
    after,
    learned,
    shape_of,
    stored_rows,
)


def test_interpolates_contexts_of_three_two_and_one_tokens():
    # Occurrences: "7 8 9" once, "8 9" twice, "9" three times; a row of c takes c / (c + 1).
    drafter = learned(*TEXTS, decay=1.0)
    one = {1: 3 / 4 * 0.9 / 3, 2: 3 / 4 * 0.6 / 3, 3: 3 / 4 * 0.5 / 3}
    two = {1: 0.8 / 2, 2: 0.6 / 2, 3: 0}
    three = {1: 0.8, 2: 0, 3: 0}
    expected = {t: 1 / 2 * three[t] + 1 / 2 * (2 / 3 * two[t] + 1 / 3 * one[t]) for t in one}
    assert after(drafter, 7, 8, 9) == pytest.approx(expected)
    assert after(drafter, 50, 51, 9) == pytest.approx(one)  # nothing longer is known


def test_weighs_later_occurrences_more_unless_told_to_keep_all():
    texts = [(1, {2: 0.8})], [(1, {3: 0.8})]
    even, recent, latest = (after(learned(*texts, decay=decay), 1) for decay in (1.0, 0.5, 0.0))
    assert even[2] == pytest.approx(even[3])
    assert recent[3] == pytest.approx(2 * recent[2])
    assert 2 not in latest


@given(st.lists(st.integers(0, 2**21 - 2), min_size=3, max_size=9))
def test_a_context_packs_the_last_three_tokens(tokens):
    context = extend(0, *tokens)
    for order in (1, 2, 3):
        expected = np.array([tokens[-order:]])
        assert shorten(context, order) == pack(expected)[0]
        assert unpack(pack(expected), order).tolist() == expected.tolist()


def test_learns_from_rejected_nodes_and_goes_on_from_the_accepted_path():
    #  3 -> 4 -> 5 (accepted), 3 -> 6 -> 7 (rejected)
    drafter = TableDrafter()
    drafter.start([1, 2, 3], SAMPLING, KEY)
    rows = [[4], [5], [70], [8], [80]], [[0.9]] * 5
    drafter.update(Round([3, 4, 6, 5, 7], [-1, 0, 0, 1, 2], [0, 1, 3], 8, *rows))
    assert after(drafter, 3, 6, 7)[80] == pytest.approx(0.9 * 7 / 8)  # 1/2 + 1/4 + 1/8
    assert after(drafter, 2, 3, 6)[70] == pytest.approx(0.9 * 7 / 8)
    assert after(drafter, 1, 2, 3)[4] == pytest.approx(0.9 * 7 / 8)
    assert after(drafter, 2, 3, 4)[5] == pytest.approx(0.9 * 7 / 8)
    assert drafter.cursor(8).state == extend(0, 4, 5, 8)


def test_draws_the_tree_of_the_likeliest_paths():
    # Seen once at all three lengths, a row counts 7/8: 2 has .70, 3 has .35, 4 after 2 has .52.
    drafter = learned([(1, {2: 0.8, 3: 0.4}), (2, {4: 0.6}), (4, {})])
    drafter.start([1], SAMPLING, KEY)
    tokens, parents, _ = shape_of(drafter.propose(1, 3))
    assert (tokens, parents) == ([1, 2, 4, 3], [-1, 0, 1, 0])


STORED = stored_rows(
    {(9,): (3, {1: 0.36, 2: 0.16})}, {(8, 9): (2, {1: 0.64})}, {(7, 8, 9): (1, {3: 1.0})}
)


def says(drafter, root, token, best):
    """Tell the drafter that a token followed the root, and what was probable there."""
    drafter.update(Round([root], [-1], [0], token, [best], [[0.6, 0.2, 0.1][: len(best)]]))


def test_runners_up_of_the_last_token_share_what_no_row_predicts():
    drafter = TableDrafter()
    drafter.start([8], SAMPLING, KEY)
    says(drafter, 8, 8, [8, 5])
    # The row of 8, seen once, has half of the probability: 0.3 for 8 and 0.1 for 5.
    found = drafter.next_probs(drafter.state(8))
    assert found == {8: pytest.approx(0.3), 5: pytest.approx(0.1 + 0.6 * 0.07)}


def test_a_runner_up_that_comes_next_is_more_probable_from_then_on():
    drafter = TableDrafter()
    drafter.start([8], SAMPLING, KEY)
    says(drafter, 8, 7, [7, 5, 4])
    assert drafter.next_probs(drafter.state(7)) == {5: pytest.approx(0.07), 4: pytest.approx(0.06)}
    says(drafter, 7, 5, [5, 3, 2])
    hit, miss = (0.07 * 6 * 0.99 + 1) / (6 * 0.99 + 1), 0.06 * 6 * 0.99 / (6 * 0.99 + 1)
    assert drafter.next_probs(drafter.state(5)) == {3: pytest.approx(hit), 2: pytest.approx(miss)}


def test_runners_up_are_expected_at_once_and_in_their_reply():
    drafter = TableDrafter()
    drafter.start([8], SAMPLING, KEY)
    says(drafter, 8, 7, [7, 5])
    state = drafter.state(7)
    assert set(drafter.next_probs(state)) == {5}
    assert drafter.next_probs(drafter.after(state, 9)) == {}
    drafter.start([8, 7], SAMPLING, KEY)
    assert drafter.next_probs(drafter.state(7)) == {}


def test_stored_rows_are_interpolated_from_one_token_upwards():
    # c / (c + 3) of each order: 3/6 for one token, 2/5 for two, 1/4 for three.
    probs = after(TableDrafter(STORED), 7, 8, 9)
    two = {1: 2 / 5 * 0.64 + 3 / 5 * (3 / 6 * 0.36), 2: 3 / 5 * (3 / 6 * 0.16), 3: 0.0}
    expected = {token: 3 / 4 * two[token] + 1 / 4 * (token == 3) for token in (1, 2, 3)}
    assert probs == pytest.approx(expected, abs=0.002)


def test_learned_rows_come_before_stored_ones_of_the_same_context():
    drafter = TableDrafter(STORED)
    drafter.start([9], SAMPLING, KEY)
    drafter.update(Round([9], [-1], [0], 4, [[5]], [[0.8]]))
    probs = after(drafter, 9)  # learned once: 1/2, then stored: 3/6 of the rest
    assert probs == pytest.approx({5: 0.7, 1: 0.36 / 16, 2: 0.16 / 16}, abs=0.002)


@pytest.mark.parametrize(
    ("prompt", "knows"), [([1, 2], True), ([1, 2, 4, 9], True), ([1, 3], False), ([1], False)]
)
def test_beside_stored_rows_what_was_learned_is_kept_while_the_conversation_goes_on(prompt, knows):
    drafter = TableDrafter(STORED)
    drafter.start([1, 2], SAMPLING, KEY)
    drafter.update(Round([2], [-1], [0], 4, [[4]], [[0.8]]))
    drafter.start(prompt, SAMPLING, KEY)
    assert (4 in after(drafter, 2)) == knows


def test_drops_rows_seen_once_before_others_and_old_before_new():
    rows = LearnedRows(max_rows=4, decay=1.0)
    for context in (1, 2, 2, 3, 4, 5):
        rows.learn(context, [7], [0.5])
    assert set(rows) == {2, 5}


def test_drafters_made_from_one_another_share_what_they_store():
    def num_known(drafter):
        drafter.start([50], SAMPLING, KEY)
        for token in range(8):
            drafter.update(Round([token], [-1], [0], 20, [[token + 1]], [[0.8]]))
        drafter.start([50], SAMPLING, KEY)
        return sum(bool(after(drafter, token)) for token in range(8))

    first = TableDrafter(max_rows=8)
    assert num_known(first) == 8
    others = [first.fresh(), first.fresh().fresh(), first.fresh()]
    assert all(1 <= num_known(drafter) <= 2 for drafter in (first, *others))
    del others
    assert num_known(first) == 8


def test_cuts_a_wide_row_to_its_most_probable_tokens():
    rows = LearnedRows(max_rows=4, decay=1.0)
    for first in range(0, 80, 8):
        rows.learn(1, range(first, first + 8), [0.01] * 8)
        rows.learn(1, [99], [0.9])
    assert len(rows.get(1).masses) <= 40
    assert rows.get(1).masses[99] == pytest.approx(9.0)


@pytest.mark.parametrize("settings", [{"max_rows": 0}, {"decay": 1.5}], ids=["max_rows", "decay"])
def test_refuses_settings_out_of_range(settings):
    ((name, value),) = settings.items()
    with pytest.raises(ValueError, match=f"{name} .*{value}"):
        TableDrafter(**settings)
