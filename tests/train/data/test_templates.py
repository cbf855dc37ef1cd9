"""Prompts made of templates, and what they share with the questions of the benchmarks."""

import json
from pathlib import Path

import pytest

from mlxspec.bench.prompts import read_questions
from mlxspec.errors import MlxspecError
from mlxspec.train.data.prompts import Templates, read_prompts

ASSETS = Path(__file__).parents[3] / "assets"
RECIPE = ASSETS / "recipes" / "prompts.toml"
FOREIGN = ASSETS / "questions" / "foreign.jsonl"
RUN = 6  # words in a row that tell one text from all others
WORDS = {"pet": ["cat", "dog"], "n": [2, 3]}


def made(**changes):
    settings = {"templates": [["Feed {n} times the {pet}."]], "words": WORDS, "count": 40}
    return Templates(**{**settings, **changes}).prompts()


def test_makes_every_filling_once():
    fillings = {f"Feed {n} times the {pet}." for n in (2, 3) for pet in ("cat", "dog")}
    assert sorted(turn for (turn,) in made()) == sorted(fillings)


def test_a_name_is_the_same_word_in_all_turns():
    turns = made(templates=[["A {pet}.", "The {pet}, again the {pet}."]])
    assert sorted(turns) == [[f"A {pet}.", f"The {pet}, again the {pet}."] for pet in WORDS["pet"]]


def test_templates_take_turns():
    assert made(templates=[["one"], ["two"], ["three"]], count=2) == [["one"], ["two"]]


def test_the_seed_decides_on_the_words():
    words = {"word": [f"w{number}" for number in range(1000)]}
    settings = {"templates": [["{word}"]], "words": words, "count": 5}
    first = made(**settings, seed=1)
    assert first == made(**settings, seed=1)
    assert first != made(**settings, seed=2)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("count = 1\ntemplates = [", "cannot be read"),
        ('templates = [["a"]]', "does not set count"),
        ('count = 1\ncuont = 2\ntemplates = [["a"]]', "sets 'cuont'; it takes templates, words"),
        ('count = 0\ntemplates = [["a"]]', "count"),
        ('count = 1\nseed = -1\ntemplates = [["a"]]', "seed"),
        ("count = 1", "templates"),
        ('count = 1\ntemplates = ["a"]', "templates"),
        ('count = 1\ntemplates = [["{pet}"]]', "the name {pet} of a template has no list"),
        ('count = 1\nwords = 3\ntemplates = [["a"]]', "words"),
    ],
)
def test_refuses_a_wrong_file(tmp_path, text, message):
    path = tmp_path / "prompts.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(MlxspecError) as caught:
        read_prompts(path)
    assert message in str(caught.value)


def test_the_recipe_makes_thousands_of_conversations():
    prompts = read_prompts(RECIPE)
    assert len(prompts) > 3_000
    assert not any("{" in turn and "}" in turn for turns in prompts for turn in turns)


@pytest.mark.parametrize("questions", [None, FOREIGN], ids=["built-in", "foreign"])
def test_no_question_of_a_benchmark_is_in_the_training_prompts(questions):
    trained = {run for turns in read_prompts(RECIPE) for run in _runs(turns)}
    asked = {run for question in read_questions(questions) for run in _runs(question.turns)}
    assert not trained & asked


def test_the_foreign_questions_are_not_the_built_in_ones():
    own = {run for question in read_questions() for run in _runs(question.turns)}
    foreign = {run for question in read_questions(FOREIGN) for run in _runs(question.turns)}
    assert not own & foreign


def test_the_foreign_questions_have_the_six_categories_alike():
    categories = [json.loads(line)["category"] for line in FOREIGN.read_text("utf-8").splitlines()]
    assert {categories.count(name) for name in categories} == {11}
    assert set(categories) == {one.category for one in read_questions()} - {"copy"}


def _runs(turns):
    """Return all runs of six words of a conversation; a shorter turn is one run."""
    for turn in turns:
        words = turn.lower().split()
        for start in range(max(len(words) - RUN, 0) + 1):
            yield tuple(words[start : start + RUN])
