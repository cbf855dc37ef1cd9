"""Recurrent states: a version per staged row, of which a commit keeps one; numbers by hand."""

import mlx.core as mx
import pytest

from mlxspec.errors import CacheError
from mlxspec.kv.cache import Cache
from mlxspec.kv.states import States

# 0 -> (1 -> 3, 2 -> (4, 5)): node 3 follows the first child, 4 and 5 the second.
PARENTS = [-1, 0, 0, 1, 2, 2]


def column(*numbers):
    return mx.array(numbers, mx.float32)[:, None]


def read(states, rows=None, index=0):
    found = states.read(0, index, rows)
    return None if found is None else found[:, 0].tolist()


def run(states, index=0):
    """A layer whose state is the path: every row appends a digit, its index and one, to it."""
    for rows in states.levels:
        before = states.read(0, index, rows)
        before = mx.zeros((len(rows), 1)) if before is None else before
        states.write(0, index, before * 10 + column(*(row + 1 for _, row in rows)), rows)


def text(states, *numbers, num_rows=3):
    """Commit a text that leaves these states, one per sequence."""
    states.expect_text(num_rows)
    states.write(0, 0, column(*numbers), None)
    states.commit([list(range(num_rows))] * len(numbers))


def of_text(number):
    other = States(1)
    text(other, number)
    return other


@pytest.fixture
def states():
    return of_text(7)


def test_a_row_goes_on_from_its_parent_level_by_level(states):
    states.expect_rows([PARENTS])
    assert states.levels == [[(0, 0)], [(0, 1), (0, 2)], [(0, 3), (0, 4), (0, 5)]]
    assert states.num_staged == 6
    run(states)
    ends = [read(states, [(0, row)]) for row in range(6)]
    assert ends == [[71], [712], [713], [7124], [7135], [7136]]


def test_rows_behind_staged_rows_go_on_from_these(states):
    states.expect_rows([[-1, 0]])
    run(states)
    states.expect_rows([[1, 0]])
    assert states.levels == [[(0, 2), (0, 3)]]
    run(states)
    assert [read(states, [(0, row)]) for row in (2, 3)] == [[7123], [714]]
    assert states.num_staged == 4


@pytest.mark.parametrize(
    ("path", "kept"), [([0], 71), ([0, 1, 3], 7124), ([0, 2, 5], 7136), ([], 7)]
)
def test_a_commit_keeps_the_state_after_the_last_row_of_the_path(states, path, kept):
    states.expect_rows([PARENTS])
    run(states)
    states.commit([path])
    assert read(states) == [kept]
    states.expect_rows([[-1]])
    assert read(states, states.levels[0]) == [kept]


def test_what_is_not_committed_is_forgotten(states):
    states.expect_rows([PARENTS])
    run(states)
    states.forget()
    assert (read(states), states.num_staged) == ([7], 0)
    states.expect_text(3)
    states.write(0, 0, column(9), None)
    assert read(states) == [9]  # a layer may read what it has set
    with pytest.raises(CacheError, match="committed whole"):
        states.commit([[0, 1]])
    states.forget()
    assert read(states) == [7]


@pytest.mark.parametrize(
    "change", [lambda states: text(states, 8), lambda states: states.fill(0, of_text(8))]
)
def test_a_snapshot_is_restored_whatever_came_after(change, states):
    snapshot = states.snapshot()
    change(states)
    assert read(states) == [8]
    states.restore(snapshot)
    assert read(states) == [7]


def test_a_layer_sets_its_arrays_one_after_the_other(states):
    states.expect_rows([[-1, 0]])
    run(states)
    run(states, index=1)  # of which the text has left nothing
    assert read(states, [(0, 1)]) == [712]
    assert read(states, [(0, 1)], index=1) == [12]
    states.commit([[0, 1]])
    assert (read(states), read(states, index=1)) == ([712], [12])


def test_a_text_begins_without_a_state():
    states = States(1)
    assert read(states) is None
    states.expect_rows([[-1]])
    assert read(states, [(0, 0)]) is None


def test_sequences_of_a_batch_have_trees_of_their_own():
    states = States(1, num_sequences=2)
    text(states, 7, 8)
    states.expect_rows([[-1, 0, 0], [-1, 0, 1]])
    run(states)
    assert [read(states, [(0, row)]) for row in range(3)] == [[71], [712], [713]]
    assert [read(states, [(1, row)]) for row in range(3)] == [[81], [812], [8123]]
    states.commit([[0, 2], []])
    assert read(states) == [713, 8]


def test_a_sequence_is_filled_takes_its_own_state_along_and_others_are_dropped():
    states = States(1, num_sequences=3)
    for sequence, number in ((2, 6), (0, 4)):
        states.fill(sequence, of_text(number))
    assert read(states) == [4, 0, 6]
    assert [states.of_sequence(at)[0][0].tolist() for at in (2, 0)] == [[[6]], [[4]]]
    states.keep([2, 0])
    assert read(states) == [6, 4]
    states.expect_rows([[-1], [-1]])
    run(states)
    assert read(states, states.levels[0]) == [61, 41]


# ---- ends of texts to go back to, in a cache -----------------------------------------------


def read_text(cache, number, length):
    """Commit a text of some tokens that leaves a state."""
    cache.states.expect_text(length)
    cache.states.write(0, 0, column(number), None)
    cache.stage(0, *[mx.zeros((1, 1, length, 4))] * 2)
    cache.commit(range(length))


def write_round(cache):
    """Commit one token, as a round of a reply."""
    cache.states.expect_rows([[-1]])
    run(cache.states)
    cache.stage(0, *[mx.zeros((1, 1, 1, 4))] * 2)
    cache.commit([0])


@pytest.fixture
def cache():
    """A cache after a text of five tokens."""
    cache = Cache(1, num_states=1)
    read_text(cache, 7, 5)
    return cache


def assert_goes_back(cache):
    cache.truncate(5)
    assert (read(cache.states), cache.offset) == ([7], 5)


def test_a_chat_goes_back_to_the_end_of_its_prompt_however_many_rounds_came_after_it(cache):
    for _ in range(30):
        write_round(cache)
    assert cache.nearest(34) == 5  # not to the end of a round
    assert_goes_back(cache)


def test_a_chat_goes_back_to_one_end_as_often_as_it_likes(cache):
    for number in (8, 9):
        read_text(cache, number, 3)
        write_round(cache)
        assert_goes_back(cache)


def test_a_text_that_was_taken_over_can_be_gone_back_to(cache):
    taken = cache.filled(5, cache.rows(0, 5), states=cache.states.snapshot())
    write_round(taken)
    assert read(taken.states) == [71]
    assert taken.nearest(5) == 5
    assert_goes_back(taken)
