"""Matches in earlier texts against a search through them, and the drafts that copy them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlxspec.drafters.pool import PoolDrafter
from mlxspec.drafters.search.earlier import RUN, Copying, EarlierTexts
from mlxspec.drafters.suffix import SuffixDrafter
from tests.support.drafting import KEY, SAMPLING

TEXT = [7 * i % 101 for i in range(60)]  # no token twice
TEXTS = st.lists(st.lists(st.integers(0, 1), max_size=30), max_size=4)


def texts_of(*texts, **more):
    found = EarlierTexts(**more)
    found.add(texts)
    return found


def searched(texts, latest):
    """The longest match of the end of `latest`, and the token after each place where it stands."""
    ends = [(text[:at], text[at:]) for text in texts for at in range(RUN, len(text) + 1)]
    lengths = [
        next(
            (
                n
                for n, pair in enumerate(zip(before[::-1], latest[::-1], strict=False))
                if pair[0] != pair[1]
            ),
            min(len(before), len(latest)),
        )
        for before, _ in ends
    ]
    longest = max(lengths, default=0)
    follow = {
        (*after, None)[0] for n, (_, after) in zip(lengths, ends, strict=True) if n == longest
    }
    return longest, follow


@given(TEXTS, st.lists(st.integers(0, 1), max_size=20))
def test_finds_the_longest_match_of_all_texts(texts, latest):
    found, (length, follow) = texts_of(*texts).find(latest), searched(texts, latest)
    assert (found is not None) == (length >= RUN)
    if found is not None and len(texts) < 2:  # else only the newest places are compared
        assert found.next_token in follow or found.length < length
    if found is not None:
        text = found.text[max(0, found.place - found.length) : found.place].tolist()
        assert text == latest[len(latest) - found.length :]


def test_the_longest_match_counts_and_of_equal_ones_the_newest():
    run = TEXT[:RUN]
    texts = texts_of([90, *run, 1], [*run, 2], [*run, 3])
    assert texts.find([90, *run]).next_token == 1
    assert texts.find([91, *run]).next_token == 3


def test_no_match_crosses_the_end_of_a_text():
    texts = texts_of(TEXT[:20], TEXT[20:])
    assert texts.find(TEXT[:20]).next_token is None
    assert texts.find(TEXT[14:26]) is None
    assert texts.find(TEXT[: RUN - 1]) is None


def test_beyond_the_limit_the_oldest_tokens_are_dropped():
    texts = texts_of(TEXT[:20], TEXT[20:40], max_tokens=30)
    assert texts.find(TEXT[:10]) is None
    assert texts.find(TEXT[20:30]).next_token == TEXT[30]


def test_a_copy_goes_on_behind_a_changed_word():
    copying = Copying(texts_of(TEXT))
    copying.start(TEXT[:20])
    for token in (97, 98, *TEXT[22:24]):
        copying.append(token)
        assert copying.match is None
    copying.append(TEXT[24])
    assert copying.match.next_token == TEXT[25]


def test_a_copy_that_broke_off_long_ago_does_not_go_on():
    copying = Copying(texts_of(TEXT))
    copying.start(TEXT[:20])
    for token in (*[99] * 60, *TEXT[22:25]):
        copying.append(token)
    assert copying.match is None


def test_a_wrong_copy_is_drafted_less_and_less():
    copying = Copying(texts_of(TEXT))
    copying.start(TEXT[:20])
    before = copying.prob(copying.match)
    copying.learn(TEXT[20])
    assert copying.prob(copying.match) > before
    for _ in range(20):
        copying.learn(100)
    assert copying.prob(copying.match) < 0.5


@pytest.mark.parametrize("in_pool", [False, True])
def test_a_reply_of_another_session_is_drafted_whole(in_pool):
    suffix = SuffixDrafter(earlier=texts_of(TEXT))
    drafter = PoolDrafter([suffix]) if in_pool else suffix
    drafter.start(TEXT[:12], SAMPLING, KEY)
    assert drafter.propose(TEXT[11], 16).tree.lists()[0] == TEXT[11:28]
    assert {*drafter.propose(TEXT[11], 16).sources} == {"suffix"}


def test_a_longer_match_of_this_session_comes_before_one_of_another():
    drafter = SuffixDrafter(earlier=texts_of([*TEXT[10:20], 99]))
    drafter.start([*TEXT[:30], *TEXT[:20]], SAMPLING, KEY)
    assert drafter.propose(TEXT[19], 1).tree.lists()[0] == TEXT[19:21]


def test_another_sequence_has_the_texts_and_a_drafter_that_learned_nothing_has_not():
    drafter = SuffixDrafter(earlier=texts_of(TEXT))
    for made, size in ((drafter.fresh_for(None), 5), (drafter.fresh(), 1)):
        made.start(TEXT[:12], SAMPLING, KEY)
        assert made.propose(TEXT[11], 4).tree.n_nodes == size


def test_texts_are_added_while_a_reply_is_written():
    texts = EarlierTexts()
    drafter = SuffixDrafter(earlier=texts)
    drafter.start(TEXT[:12], SAMPLING, KEY)
    texts.add([TEXT])
    drafter.propose(TEXT[12], 4)
    assert drafter.propose(TEXT[13], 4).tree.lists()[0] == TEXT[13:18]


def test_hashes_of_equal_runs_do_not_hide_each_other(monkeypatch):
    """Two runs with one hash: the tokens decide."""
    from mlxspec.drafters.search import earlier

    monkeypatch.setattr(
        earlier, "_hashes", lambda tokens: np.zeros(max(0, len(tokens) - RUN + 1), np.uint64)
    )
    assert texts_of(TEXT[:12], TEXT[20:30]).find(TEXT[20:29]).next_token == TEXT[29]
