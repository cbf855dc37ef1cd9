"""The suffix automaton and its drafter against a search through the text."""

from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlxspec.drafters.suffix import ROOT, SuffixAutomaton, SuffixDrafter
from mlxspec.drafts.round import Round
from mlxspec.params import SamplingParams
from tests.support.drafting import (
    KEY,
    SAMPLING,
    reply,
    shape_of,
)

TEXTS = st.lists(st.integers(0, 2), max_size=24)


def read_all(automaton, text, state=ROOT):
    return list(accumulate(text, automaton.read, initial=state))


def ends_with(text, end):
    return tuple(text[len(text) - len(end) :]) == tuple(end)


def substrings(text):
    return {tuple(text[i:j]) for i in range(len(text)) for j in range(i + 1, len(text) + 1)}


def state_of(automaton, substring):
    state = ROOT
    for token in substring:
        state = automaton.children[state][token]
    return state


@given(TEXTS, st.integers(0, 24), TEXTS)
def test_counts_every_substring_of_a_text_and_of_its_branch(text, cut, branch):
    automaton = SuffixAutomaton()
    states = read_all(automaton, text)
    assert len(automaton.lengths) <= 2 * len(text) + 1
    cut %= len(text) + 1
    read_all(automaton, branch, states[cut])
    branched = text[:cut] + branch
    reads = [text[:end] for end in range(1, len(text) + 1)]
    reads += [branched[:end] for end in range(cut + 1, len(branched) + 1)]
    for substring in substrings(text) | substrings(branched):
        expected = sum(ends_with(read, substring) for read in reads)
        assert automaton.counts[state_of(automaton, substring)] == expected


@given(TEXTS, TEXTS)
def test_follows_the_longest_suffix_that_was_read(text, other):
    automaton = SuffixAutomaton()
    read_all(automaton, text)
    known = substrings(text)
    state, length = ROOT, 0
    for end, token in enumerate(other, 1):
        state, length = automaton.follow(state, length, token)
        suffixes = [other[start:end] for start in range(end)]
        expected = max((len(s) for s in suffixes if tuple(s) in known), default=0)
        assert length == expected
        assert state == state_of(automaton, other[end - length : end])


def followers(text):
    """Tokens that followed the longest suffix of a text that something followed, with counts."""
    for length in range(len(text) - 1, 0, -1):
        found = [
            text[i + length]
            for i in range(len(text) - length)
            if text[i : i + length] == text[-length:]
        ]
        if found:
            return {token: found.count(token) for token in found}
    return {}


@given(st.lists(st.integers(0, 4), min_size=1, max_size=30))
def test_offers_what_followed_the_longest_match_before(text):
    drafter = SuffixDrafter()
    drafter.start(text, SAMPLING, KEY)
    probs = drafter.cursor(text[-1]).next_probs()
    expected = followers(text)
    assert set(expected) <= set(probs)
    assert not expected or max(probs.values()) < 1
    if not expected:
        assert probs == {}


def test_shares_a_match_by_counts():
    drafter = SuffixDrafter()
    drafter.start([1, 5, 1, 5, 1, 5, 1, 6, 1], SAMPLING, KEY)
    probs = drafter.cursor(1).next_probs()
    # "6 1" was never followed; "1" was: three times by 5, once by 6.
    assert set(probs) == {5, 6}
    assert probs[5] == pytest.approx(3 * probs[6])


def test_draws_a_long_match_out_to_a_chain():
    drafter = SuffixDrafter()
    text = list(range(100, 120))
    drafter.start([*text, *text[:10]], SAMPLING, KEY)
    tokens, parents, probs = shape_of(drafter.propose(109, 6))
    assert tokens == [109, 110, 111, 112, 113, 114, 115]
    assert parents == [-1, 0, 1, 2, 3, 4, 5]
    assert probs == sorted(probs)  # trust grows with the match


def test_copies_the_reply_that_is_being_written():
    drafts = reply(SuffixDrafter(), [50], [1, 2, 3, 4, 1, 2, 3, 4, 1, 2, 3, 4], budget=4)
    assert len(drafts) == 7  # 1 2 3 4 1 one by one, then 2 3 4 1 2 and 3 4 1


def test_loses_trust_in_matches_that_fail():
    drafter = SuffixDrafter()
    drafter.start([1, 2, 1], SAMPLING, KEY)
    before = drafter.cursor(1).next_probs()[2]
    reply(drafter, [9], [token for n in range(10, 30) for token in (1, n)])
    drafter.start([1, 2, 1], SAMPLING, KEY)
    # 1 was followed by twenty other tokens, and by none of them twice.
    assert drafter.cursor(1).next_probs().get(2, 0.0) < before / 10


def test_loses_trust_for_greedy_and_for_sampled_text_apart():
    def trust(sampling, token):
        drafter.start([token, token + 1, token], sampling, KEY)
        return drafter.cursor(token).next_probs()[token + 1]

    drafter, sampled = SuffixDrafter(), SamplingParams(temperature=1.0)
    before, greedy = trust(sampled, 10), trust(SAMPLING, 20)
    for token in range(100, 400, 10):
        trust(sampled, token)
        drafter.update(Round([token], [-1], [0], token + 5))
    assert trust(sampled, 30) < before / 2
    assert trust(SAMPLING, 40) == pytest.approx(greedy)


def test_an_old_reply_is_proposed_again_and_read_only_once():
    drafter = SuffixDrafter()
    reply(drafter, [1, 2, 3], [4, 5, 6, 7, 8])
    size = len(drafter._automaton.lengths)
    drafter.start([1, 2, 3], SAMPLING, KEY)
    assert shape_of(drafter.propose(3, 5))[0] == [3, 4, 5, 6, 7, 8]
    drafter.start([1, 2, 3, 4, 5, 6], SAMPLING, KEY)
    assert len(drafter._automaton.lengths) == size
    assert drafter._automaton.counts[drafter._states[3]] == 1


def test_finds_no_match_over_the_end_of_a_conversation():
    drafter = SuffixDrafter()
    drafter.start([1, 2], SAMPLING, KEY)
    drafter.start([3, 4, 9, 2], SAMPLING, KEY)
    assert drafter.cursor(2).next_probs() == {}  # 3 was read after 2, but did not follow it


def test_forgets_earlier_conversations_when_there_are_too_many_tokens():
    drafter = SuffixDrafter(max_tokens=4)
    drafter.start([1, 2, 3, 4, 5, 6, 7], SAMPLING, KEY)
    drafter.start([9, 2], SAMPLING, KEY)
    assert shape_of(drafter.propose(2, 4))[0] == [2]
    assert len(drafter._automaton.lengths) == 3


def test_drafters_made_from_one_another_share_what_they_store():
    def remembers(drafter):
        drafter.start([1, 2, 3, 4, 5], SAMPLING, KEY)
        drafter.start([9, 2], SAMPLING, KEY)
        return drafter.propose(2, 4).tree.n_nodes > 1

    first = SuffixDrafter(max_tokens=8)
    assert remembers(first)
    others = [first.fresh(), first.fresh().fresh(), first.fresh()]
    assert not any(remembers(drafter) for drafter in (first, *others))  # 2 tokens for each
    del others
    assert remembers(first)
