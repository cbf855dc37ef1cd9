"""Where a user's text stands in a chat template, files of prompts, and prompts of templates."""

import pytest

from mlxspec.bench.prompts import read_questions
from mlxspec.errors import MlxspecError, UnsupportedOperationError
from mlxspec.train.data.prompts import Templates, UserFrame, find_user_frame, read_prompts
from tests.support.paths import ROOT
from tests.support.toy_chat import CHATML, LLAMA2, LLAMA3, byte_tokenizer

SAID = [{"role": "user", "content": "hi x y"}, {"role": "assistant", "content": "yo"}]


@pytest.mark.parametrize(
    ("template", "header", "footer"),
    [
        (
            CHATML,
            "<|im_start|>system\nBe kind<|im_end|>\n<|im_start|>user\n",
            "<|im_end|>\n<|im_start|>assistant\n",
        ),
        (LLAMA3, "<|bos|><|head|>user<|/head|>\n\n", "<|eot|><|head|>assistant<|/head|>\n\n"),
        (LLAMA2, "<s>[INST] ", " [/INST]"),
    ],
    ids=["chatml", "llama 3", "llama 2"],
)
def test_the_frame_is_what_stands_around_the_text(template, header, footer):
    assert find_user_frame(byte_tokenizer(template), []) == UserFrame(header, footer)


def test_the_frame_of_a_later_turn_holds_the_turns_before():
    frame = find_user_frame(byte_tokenizer(LLAMA2), SAID)
    assert frame.header == "<s>[INST] hi x y [/INST] yo </s><s>[INST] "
    assert frame.footer == " [/INST]"


@pytest.mark.parametrize(
    "template",
    [
        "no text at all",
        "{{ messages[-1].content }} again {{ messages[-1].content }} end",
        "{{ messages[-1].content | upper }} end",
        "user: {{ messages[-1].content }}\n",
    ],
    ids=["ignored", "twice", "changed", "no end"],
)
def test_a_template_that_hides_the_text_is_refused(template):
    with pytest.raises(UnsupportedOperationError, match="give a file of prompts"):
        find_user_frame(byte_tokenizer(template), [])


def write(tmp_path, name, text):
    path = tmp_path / name
    path.write_bytes(text.encode())
    return path


def test_a_text_file_has_a_prompt_per_line(tmp_path):
    path = write(tmp_path, "p.txt", 'What is a?\r\n\n  {"prompt": "b"} \nc\u2028d\n')
    assert read_prompts(path) == [["What is a?"], ['{"prompt": "b"}'], ["c\u2028d"]]


def test_a_jsonl_file_has_prompts_or_turns(tmp_path):
    path = write(tmp_path, "p.jsonl", '{"prompt": "a", "id": 3}\n\n{"turns": ["b", "c"]}\n')
    assert read_prompts(path) == [["a"], ["b", "c"]]


@pytest.mark.parametrize(
    "line",
    [
        '"text"',
        "{}",
        '{"prompt": 3}',
        '{"prompt": " "}',
        '{"turns": []}',
        '{"turns": "ab"}',
        r'{"prompt": "\ud83d"}',
    ],
)
def test_a_wrong_line_is_named(tmp_path, line):
    path = write(tmp_path, "p.jsonl", f'{{"prompt": "a"}}\n{line}\n')
    with pytest.raises(MlxspecError, match=r"line 2 of .*p\.jsonl must be"):
        read_prompts(path)


def test_a_line_that_is_no_json_is_named(tmp_path):
    for line in ("hello\n", "[" * 100_000 + "\n"):
        with pytest.raises(MlxspecError, match=r"line 1 of .*p\.jsonl is not JSON"):
            read_prompts(write(tmp_path, "p.jsonl", line))


def test_a_file_without_prompts_is_refused(tmp_path):
    with pytest.raises(MlxspecError, match="is empty"):
        read_prompts(write(tmp_path, "p.txt", "\n  \n"))
    for name in ("none.txt", "none.toml"):
        with pytest.raises(MlxspecError, match="cannot be read"):
            read_prompts(tmp_path / name)


# ---- prompts made of templates ---------------------------------------------------------------

ASSETS = ROOT / "assets"
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


def _runs(turns):
    """Return all runs of six words of a conversation; a shorter turn is one run."""
    for turn in turns:
        words = turn.lower().split()
        for start in range(max(len(words) - RUN, 0) + 1):
            yield tuple(words[start : start + RUN])
