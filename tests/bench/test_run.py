"""The run: order, prompts of later turns, and what is kept."""

from dataclasses import replace

import pytest

from mlxspec.bench import run
from mlxspec.bench.prompts import Question
from mlxspec.bench.run import Case, Plan, Runner, append_rows, read_rows
from mlxspec.errors import ContextLengthError
from mlxspec.params import GenerationParams, Grammar
from mlxspec.trace.difference import Difference
from tests.support.bench_arms import ScriptedArm, case_of, reply_of, row_of
from tests.support.tiny import ToyTokenizer, make_engine, tiny_model

PARAMS = GenerationParams(max_tokens=4)


class ToyChatTokenizer(ToyTokenizer):
    def decode(self, tokens):
        return "".join(chr(ord("a") + token) for token in tokens)

    def encode(self, text):
        return [ord(letter) - ord("a") for letter in text if letter.isalpha()]


@pytest.fixture(scope="module")
def model():
    return tiny_model()


@pytest.fixture
def engine(model):
    return make_engine(model, None, tokenizer=ToyChatTokenizer(model.config.vocab_size))


def always(*tokens):
    return lambda prompt, params: tokens


def test_arms_take_turns_in_being_first(engine):
    order = []
    arms = [ScriptedArm(name, always(1, 2), order) for name in "abc"]
    runner = Runner(engine, arms, "a")
    for number in range(3):
        runner.rows(case_of(number), number, PARAMS)
    assert order == list("abc" + "bca" + "cab")


def test_the_next_turn_stands_behind_the_reply_of_the_baseline_for_everybody(engine):
    arms = [ScriptedArm("b", always(9)), ScriptedArm("plain", always(3, 4))]
    Runner(engine, arms, "plain").rows(case_of(turns=("ab", "c"), temp=1.0), 0, PARAMS)
    prompts = [[0, 1], [0, 1, 3, 4, 2]]
    assert [arm.prompts for arm in arms] == [prompts, prompts]
    assert [arm.begun for arm in arms] == [1, 1]  # once a conversation


def test_a_conversation_has_a_seed_and_a_grammar_of_its_own(engine):
    seen = []
    arm = ScriptedArm("plain", lambda prompt, params: seen.append(params) or (1,))
    question = Question("1", "flat", ("ab",), Grammar.regex("ab"))
    for repeat in range(2):
        case = Case(question, 0.5, repeat)
        Runner(engine, [arm], "plain").rows(case, 0, replace(PARAMS, seed=7))
    assert [(one.seed, one.sampling.temperature) for one in seen] == [(7, 0.5), (8, 0.5)]
    assert {one.grammar for one in seen} == {question.grammar}
    assert question.digest != replace(question, grammar=None).digest


def test_what_does_not_fit_the_context_is_refused_before_anybody_writes(engine):
    arm = ScriptedArm("plain", always(1))
    with pytest.raises(ContextLengthError, match=r"context length of .*, 512 tokens: give"):
        Runner(engine, [arm], "plain").rows(case_of(turns=("a" * 510,)), 0, PARAMS)
    assert arm.prompts == []


def test_only_those_without_a_row_write_and_the_known_reply_is_the_standard(engine):
    case = case_of(turns=("ab", "c"))
    known = row_of(case, "plain", reply_of([3, 4]), reply_of([5]))
    arms = [ScriptedArm("plain", always(9)), ScriptedArm("new", always(3, 4))]
    (row,) = Runner(engine, arms, "plain").rows(case, 0, PARAMS, [known])
    assert row.arm == "new"
    assert arms[0].prompts == []
    assert arms[1].prompts[1] == [0, 1, 3, 4, 2]
    assert row.differences[0] is None


def test_greedy_rows_say_where_they_leave_the_baseline_and_sampled_ones_do_not(engine):
    arms = [ScriptedArm("plain", always(1, 2, 3)), ScriptedArm("odd", always(1, 7, 3))]
    plain, odd = Runner(engine, arms, "plain").rows(case_of(), 0, PARAMS)
    assert plain.differences == (None,)
    assert (odd.differences[0].index, odd.differences[0].token) == (1, 7)
    rows = Runner(engine, arms, "plain").rows(case_of(temp=1.0), 0, PARAMS)
    assert [row.differences for row in rows] == [(), ()]


@pytest.mark.parametrize(("stats", "is_foreign"), [({}, True), ({"rounds": 1}, False)])
def test_only_another_project_may_round_by_a_last_digit(engine, stats, is_foreign, monkeypatch):
    asked = []
    monkeypatch.setattr(run, "first_difference", lambda *_, is_foreign: asked.append(is_foreign))
    arms = [ScriptedArm("plain", always(1)), ScriptedArm("other", always(1))]
    arms[0].write = lambda prompt, params: reply_of([1], stats={"rounds": 1})
    arms[1].write = lambda prompt, params: reply_of([1], stats=stats)
    Runner(engine, arms, "plain").rows(case_of(), 0, PARAMS)
    assert asked == [False, is_foreign]


# ---- the file --------------------------------------------------------------------------------

SETUP = {"model": "tiny", "versions": {"mlx": "1"}}


def plan_of(*cases):
    questions = [case.question for case in cases]
    return Plan(questions, [0.0], 1, PARAMS)


def test_rows_come_back_as_they_were(tmp_path):
    case = case_of()
    assert read_rows(tmp_path / "rows", plan_of(case), SETUP) == []
    difference = Difference(1, 2, 3, 0.5)
    reply = reply_of([1, 2], stats={"rounds": 1}, rows=4)
    rows = [row_of(case, "plain", reply), row_of(case, "fast", reply, differences=(difference,))]
    append_rows(tmp_path / "rows", rows[:1], SETUP)
    append_rows(tmp_path / "rows", rows[1:], SETUP)
    assert read_rows(tmp_path / "rows", plan_of(case), SETUP) == rows


@pytest.mark.parametrize(
    ("question", "setup"),
    [
        (Question("1", "qa", ("another text",)), SETUP),
        (Question("2", "qa", ("ab",)), SETUP),
        (Question("1", "qa", ("ab",)), {**SETUP, "model": "other"}),
    ],
)
def test_rows_of_another_question_or_setup_do_not_count(tmp_path, question, setup):
    append_rows(tmp_path / "rows", [row_of(case_of(), "plain", reply_of([1]))], SETUP)
    assert read_rows(tmp_path / "rows", Plan([question], [0.0], 1, PARAMS), setup) == []


def test_a_line_that_was_cut_off_is_passed_over(tmp_path):
    path, case = tmp_path / "rows", case_of()
    append_rows(
        path, [row_of(case, "plain", reply_of([1])), row_of(case, "b", reply_of([1]))], SETUP
    )
    path.write_text(path.read_text()[:-20])
    assert [row.arm for row in read_rows(path, plan_of(case), SETUP)] == ["plain"]


def test_a_plan_asks_everything_before_it_asks_again():
    plan = Plan([case_of(1).question, case_of(2).question], [0.0, 1.0], 2, PARAMS)
    order = [(case.repeat, case.question.id, case.temp) for case in plan.cases]
    assert order[:4] == [(0, "1", 0.0), (0, "1", 1.0), (0, "2", 0.0), (0, "2", 1.0)]
    assert [repeat for repeat, *_ in order[4:]] == [1] * 4
