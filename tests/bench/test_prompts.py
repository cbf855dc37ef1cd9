"""The questions: the own set, and files in Spec-Bench's format."""

import json
from collections import Counter

import pytest

from mlxspec.bench.prompts import APART, choose_questions, read_questions

SIX = ["multi-turn", "translation", "summarization", "qa", "math_reasoning", "rag"]


@pytest.fixture
def write(tmp_path):
    """Write lines to a file of questions and return its path."""

    def write(*lines):
        path = tmp_path / "question.jsonl"
        texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
        path.write_text("\n".join(texts))
        return path

    return write


def question(number=1, category="qa", turns=("Why?",)):
    return {"question_id": number, "category": category, "turns": list(turns)}


def test_the_own_set_has_four_questions_in_each_of_its_categories():
    questions = read_questions()
    counts = Counter(question.category for question in questions)
    assert list(counts) == [*SIX, APART]
    assert set(counts.values()) == {4}
    assert len({q.digest for q in questions}) == len({q.id for q in questions}) == len(questions)
    assert all(len(q.turns) == 2 for q in questions if q.category == "multi-turn")
    long = [q for q in questions if q.category in ("summarization", "rag")]
    assert all(150 <= len(q.turns[0].split()) <= 400 for q in long)  # enough to copy from


def test_the_categories_of_mt_bench_are_one(write):
    names = ("writing", "humanities", "rag")
    path = write(*(question(number, name) for number, name in enumerate(names)))
    categories = [read.category for read in read_questions(path)]
    assert categories == ["multi-turn", "multi-turn", "rag"]


def test_more_in_a_line_than_is_needed_is_passed_over(write):
    path = write({**question(81), "reference": ["Because."]}, "")
    (read,) = read_questions(path)
    assert (read.id, read.turns) == ("81", ("Why?",))


@pytest.mark.parametrize(
    "line",
    [
        "not json",
        "[]",
        {"question_id": 1, "category": "qa"},
        question(turns=()),
        question(turns=[" "]),
        question(turns=[3]),
        question(turns=["half of a pair: \ud83d"]),
        {**question(), "turns": "a text and no list"},
        "[" * 100_000,
    ],
)
def test_a_line_that_is_no_question_is_named(write, line):
    with pytest.raises(ValueError, match=r"question\.jsonl, line 2"):
        read_questions(write(question(), line))


def test_a_line_separator_inside_of_a_text_parts_no_lines(write):
    line = json.dumps(question(turns=["one\u2028two\x85"]), ensure_ascii=False)
    assert read_questions(write(line))[0].turns == ("one\u2028two\x85",)


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ValueError, match="cannot read the questions"):
        read_questions(tmp_path / "none.jsonl")


def test_a_limit_counts_by_category():
    chosen = choose_questions(read_questions(), ["rag", "qa"], limit=2)
    assert [q.category for q in chosen] == ["qa", "qa", "rag", "rag"]


@pytest.mark.parametrize(
    ("categories", "limit", "message"),
    [(["chat"], None, "category 'chat' is not there; choose from"), ([], 0, "1 or more; got 0")],
)
def test_what_is_not_there_is_refused(categories, limit, message):
    with pytest.raises(ValueError, match=message):
        choose_questions(read_questions(), categories, limit)
