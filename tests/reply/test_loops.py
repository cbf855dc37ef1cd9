"""Loops in a reply: found where a text repeats itself exactly, never where its items differ."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlxspec.drafters.none import NoDrafter
from mlxspec.params import GenerationParams, SamplingParams
from mlxspec.reply.loops import LEAST_COPIES, LEAST_TOKENS, LONGEST_PERIOD, LoopFinder
from tests.support.adversaries import AlwaysRight
from tests.support.tiny import emitted, make_engine, tiny_model

tokens = st.integers(0, 50)


def first_loop(text):
    """Number of tokens after which a loop is found, or None."""
    finder = LoopFinder()
    return next((n for n, token in enumerate(text, 1) if finder.push(token)), None)


def by_definition(text):
    """The same by comparing slices, for every end and every period that the texts here have."""
    for end in range(LEAST_TOKENS, len(text) + 1):
        for period in range(1, 65):
            length = max(LEAST_TOKENS, LEAST_COPIES * period)
            if end < length or text[end - 1] != text[end - 1 - period]:
                continue
            tail = text[end - length : end]
            if tail[period:] == tail[:-period]:
                return end
    return None


@settings(max_examples=40)
@given(st.lists(tokens, max_size=40), st.lists(tokens, min_size=1, max_size=40))
def test_a_loop_is_found_as_soon_as_it_is_long_enough(before, passage):
    text = before + passage * 140
    found = first_loop(text)
    assert found is not None
    assert found == by_definition(text[:found])


@settings(max_examples=40)
@given(st.lists(st.integers(0, 2), max_size=300), st.integers(1, 40), st.integers(0, 300))
def test_text_with_a_copied_end_is_judged_as_its_definition_says(text, period, length):
    copied = text[-period:]
    text = text + (copied * (length // len(copied) + 1))[:length] if copied else text
    found = first_loop(text)
    assert found == by_definition(text)


def test_the_shortest_and_the_longest_period_are_found():
    assert first_loop([7] * 200) == LEAST_TOKENS
    longest = list(range(LONGEST_PERIOD))
    assert first_loop(longest * 4) == 4 * LONGEST_PERIOD


@settings(max_examples=20)
@given(st.lists(tokens, min_size=1, max_size=30), st.lists(tokens, max_size=10), st.integers(0, 99))
def test_a_list_whose_items_have_their_own_number_is_no_loop(head, tail, first):
    items = [[*head, 100 + first + n, *tail] for n in range(300)]
    assert first_loop([token for item in items for token in item]) is None


@settings(max_examples=20)
@given(st.integers(1, 5), st.integers(0, 1000))
def test_a_table_of_numbers_that_vary_is_no_loop(num_columns, seed):
    draw = Random(seed)
    table = [[60, *(draw.randrange(10) for _ in range(num_columns)), 61] for _ in range(200)]
    assert first_loop([token for row in table for token in row]) is None


@pytest.mark.parametrize("passage", [[1] * 100, [*range(60)] * 3, [5, 6] * 60])
def test_a_ruler_a_refrain_and_a_short_row_are_no_loops(passage):
    assert first_loop([9, *passage, 8] * 3) is None


# ---- as a stop condition -------------------------------------------------------------------

MODEL = tiny_model(max_position_embeddings=1024)
PROMPT = [3, 1, 4, 1, 5]
LOOPING = {"max_tokens": 200, "num_draft_tokens": 6}
STUCK = SamplingParams(logit_bias={7: 1e3})
NEARLY_STUCK = SamplingParams(temperature=1.0, logit_bias={7: 14.0})


def reply(drafter=None, **settings):
    params = GenerationParams(**{**LOOPING, "sampling": STUCK, **settings})
    return list(make_engine(MODEL, drafter or NoDrafter()).generate(PROMPT, params))


def test_a_reply_that_repeats_itself_is_ended_only_where_that_is_asked_for():
    whole = reply()
    assert len(emitted(whole)) == 200
    assert whole[-1].reason == "length"
    events = reply(stop_repeats=True)
    assert emitted(events) == [7] * LEAST_TOKENS
    assert events[-1].reason == "repeating"
    right = AlwaysRight([*PROMPT, *[7] * 200])  # drafts beyond the end
    assert emitted(reply(right, stop_repeats=True)) == [7] * LEAST_TOKENS


def test_up_to_its_end_a_sampled_reply_is_the_one_without_the_stop():
    longer = {"sampling": NEARLY_STUCK, "seed": 3}
    whole = emitted(reply(**longer))
    short = emitted(reply(**longer, stop_repeats=True))
    end = by_definition(whole)
    assert LEAST_TOKENS < end < len(whole)
    assert short == whole[:end]
