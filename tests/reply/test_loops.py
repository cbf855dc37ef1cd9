"""Loops in a reply: found where a text repeats itself, or nearly so, never in honest text."""

import lzma
import re
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlxspec.drafters.none import NoDrafter
from mlxspec.drafters.suffix import SuffixDrafter
from mlxspec.params import GenerationParams, SamplingParams
from mlxspec.reply.loops import LEAST_COPIES, LEAST_TOKENS, LONGEST_PERIOD, LoopFinder
from tests.support.adversaries import AlwaysRight
from tests.support.paths import ROOT
from tests.support.tiny import emitted, make_engine, tiny_model

tokens = st.integers(0, 50)


def first_loop(text):
    """Number of tokens after which a loop is found, or None."""
    finder = LoopFinder()
    return next((n for n, token in enumerate(text, 1) if finder.push(token)), None)


def by_definition(text):
    """The same for copies word for word, by comparing slices for every end and every period."""
    for end in range(LEAST_TOKENS, len(text) + 1):
        for period in range(1, 65):
            length = max(LEAST_TOKENS, LEAST_COPIES * period)
            if end < length or text[end - 1] != text[end - 1 - period]:
                continue
            tail = text[end - length : end]
            if tail[period:] == tail[:-period]:
                return end
    return None


def words_of(text):
    """Tokens of a text: words, digits and signs."""
    return re.findall(r"[^\W\d]+|.", text, re.DOTALL)


@settings(max_examples=40)
@given(st.lists(tokens, max_size=40), st.lists(tokens, min_size=1, max_size=40))
def test_a_loop_is_found_as_soon_as_it_is_long_enough(before, passage):
    text = before + passage * 140
    found = first_loop(text)
    assert found is not None
    assert found <= by_definition(text)


def test_the_shortest_and_the_longest_period_are_found():
    assert first_loop([7] * 200) == LEAST_TOKENS
    longest = list(range(LONGEST_PERIOD))
    assert first_loop(longest * 4) == 4 * LONGEST_PERIOD
    assert first_loop([*longest, LONGEST_PERIOD] * 5) is None


# ---- copies that differ by a word ------------------------------------------------------------

SORRY = "I'm sorry, but I {} help you with that request at this time. "
SKY = "The sky is {} because the {} of the sun is scattered by the molecules of the air. "


def varied(sentence, num_copies, *choices, seed=3):
    draw = Random(seed)
    return "".join(sentence.format(*map(draw.choice, choices)) for _ in range(num_copies))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    ("sentence", "choices"),
    [
        (SORRY, [["can't", "cannot", "am not able to"]]),
        (SKY, [["blue", "light blue"], ["light", "light", "colour"]]),
    ],
)
def test_copies_that_differ_by_a_word_are_a_loop(sentence, choices, seed):
    text = words_of(varied(sentence, 30, *choices, seed=seed))
    assert LEAST_TOKENS < first_loop(text) < 20 * len(words_of(sentence))


def test_a_long_passage_is_a_loop_even_where_each_copy_has_its_own_number():
    copies = [[*range(100), 100 + n] for n in range(20)]
    assert 4 * 101 < first_loop([token for copy in copies for token in copy]) < 9 * 101


# ---- honest text -----------------------------------------------------------------------------


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


FARM = {
    "cow": "moo",
    "pig": "oink",
    "duck": "quack",
    "horse": "neigh",
    "dog": "woof",
    "hen": "cluck",
}
BOTTLES = (
    "{0} bottles of beer on the wall, {0} bottles of beer.\n"
    "Take one down and pass it around, {1} bottles of beer on the wall.\n"
)
VERSE = (
    "Old MacDonald had a farm, E-I-E-I-O!\nAnd on his farm he had a {0}, E-I-E-I-O!\n"
    "With a {1}-{1} here and a {1}-{1} there,\nHere a {1}, there a {1}, everywhere a {1}-{1}.\n"
    "Old MacDonald had a farm, E-I-E-I-O!\n\n"
)
CARD = '<div class="card">\n  <h3>Card {}</h3>\n  <p>Lorem ipsum dolor sit amet.</p>\n</div>\n'
HONEST = {
    "bottles": "".join(BOTTLES.format(n, n - 1) for n in range(99, 0, -1)),
    "farm": "".join(VERSE.format(*each) for each in FARM.items()),
    "cards": "".join(map(CARD.format, range(1, 40))),
    "inserts": "".join(f"INSERT INTO t (id, name) VALUES ({n}, 'user{n}');\n" for n in range(60)),
    "times": "".join(f"{n} x 7 = {7 * n}\n" for n in range(1, 200)),
    "dates": "".join(f"2024-{n // 28 + 1:02}-{n % 28 + 1:02},OK,0\n" for n in range(120)),
    "truths": "".join(
        "| " + " | ".join("FT"[n >> bit & 1] for bit in range(6)) + " |\n" for n in range(64)
    ),
    "unit matrix": "".join(f"[{'0, ' * n}1{', 0' * (19 - n)}],\n" for n in range(20)),
    "yes and no": varied("| {} | {} | {} | {} |\n", 80, *[["yes", "no"]] * 4),
    "bits": varied("{} ", 800, "01"),
    "coin": varied("{}\n", 400, ["Heads", "Tails"]),
}


@pytest.mark.parametrize("text", HONEST.values(), ids=HONEST)
def test_a_list_a_table_code_and_a_poem_with_a_refrain_are_no_loops(text):
    assert len(words_of(text)) > 400
    assert first_loop(words_of(text)) is None


def test_what_a_model_wrote_and_the_pages_and_code_of_this_project_are_no_loops():
    seed = lzma.decompress((ROOT / "assets/seed/text.xz").read_bytes()).decode().split("\0")
    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("mlxspec/*/*.py")][:60]
    for text in [*seed[::40], *(page.read_text() for page in pages)]:
        assert first_loop(words_of(text)) is None, text[-200:]


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


@pytest.mark.parametrize("drafter", [NoDrafter, SuffixDrafter])
def test_up_to_its_end_a_sampled_reply_is_the_one_without_the_stop_drafted_or_not(drafter):
    longer = {"sampling": NEARLY_STUCK, "seed": 3}
    whole = emitted(reply(**longer))
    short = emitted(reply(drafter(), **longer, stop_repeats=True))
    assert LEAST_TOKENS < len(short) <= by_definition(whole) < len(whole)
    assert short == whole[: first_loop(whole)]
