"""`mlxspec verify --exact` on a tiny model, and on one whose rows are wrong on purpose."""

import json
from dataclasses import replace

import mlx.core as mx
import pytest

from mlxspec.bench import exact
from mlxspec.bench.exact import TEMPERATURES, ExactResult, ExactRow, check_exact, text
from mlxspec.bench.prompts import Question
from mlxspec.bench.verify import Plan
from mlxspec.decoder.decoder import Decoder
from mlxspec.decoder.exact import ExactForm
from mlxspec.loading import LoadedModel, exactness
from mlxspec.measure.tables import as_json
from mlxspec.params import Grammar, Options
from mlxspec.reply import writer
from mlxspec_cli.commands import verify as verify_command
from mlxspec_cli.main import main
from tests.support.tiny import ToyTokenizer, tiny_model

PLAN = Plan(
    questions=[Question("1", "qa", ("abcabcab",)), Question("2", "qa", ("dddddddd",))],
    caches=[Options(), Options(max_kv_size=200)],
    drafters=["suffix"],
    num_nodes=[3, 6],
    max_tokens=12,
    num_draws=1,
)


@pytest.fixture(autouse=True)
def _own_records(tmp_path, monkeypatch):
    monkeypatch.setenv("MLXSPEC_HOME", str(tmp_path))
    monkeypatch.setattr(exactness, "_known", {})


def checked(plan=PLAN):
    loaded = LoadedModel(tiny_model(), ToyTokenizer(), "tiny", "float32")
    return check_exact(loaded, plan, lambda line: None, lambda items, doing: items)


def test_no_reply_differs_by_a_bit():
    result = checked()
    count = len(PLAN.questions) * len(TEMPERATURES)
    assert [(row.cache, row.num_replies, row.num_different) for row in result.rows] == [
        ("full", count, 0),
        ("rotating 200 (4 kept)", count, 0),
    ]
    assert result.is_lossless
    assert all(row.drafted > row.accepted > 0 for row in result.rows)
    assert result.verdict_text.startswith(f"exact: 0 of {2 * count} replies differ by a bit")
    assert result.verdict_text in text(result)
    assert as_json(result)["forms"].keys() == {"full", "rotating 200 (4 kept)"}


def test_a_bit_of_one_logit_is_seen(monkeypatch):
    forward = Decoder.forward_tree
    found = ExactForm({8: 8}, pads_keys=True)
    monkeypatch.setattr(exact, "exact_form", lambda *_: found)
    monkeypatch.setattr(writer, "exact_form", lambda *_: found)

    def off(decoder, tree):
        states = forward(decoder, tree)
        is_drafted = len(set(tree.tokens.tolist())) > 1
        return states * (1 + mx.finfo(mx.float32).eps * 2) if is_drafted else states

    monkeypatch.setattr(Decoder, "forward_tree", off)
    result = checked(replace(PLAN, questions=PLAN.questions[:1], caches=PLAN.caches[:1]))
    assert not result.is_lossless
    assert result.verdict_text.startswith("NOT exact")


def test_draws_are_refused_as_no_samples_are_counted(monkeypatch, capsys):
    monkeypatch.setattr(verify_command, "load_model", lambda *_, **__: pytest.fail("not refused"))
    assert main(["verify", "--exact", "--draws", "9"]) == 2
    said = capsys.readouterr().err
    assert "--draws 9 has no effect with --exact" in said
    assert "leave one of them out" in said


def test_replies_fit_the_grammar_of_the_plan(monkeypatch):
    said = []

    class Kept(exact._Reply):
        def __init__(self, arm, prompt, params):
            super().__init__(arm, prompt, params)
            said.append(ToyTokenizer().decode(self.trial.tokens))

    monkeypatch.setattr(exact, "_Reply", Kept)
    few = {"questions": PLAN.questions[:1], "caches": PLAN.caches[:1]}
    assert checked(replace(PLAN, grammar=Grammar.choices(["ab", "cd"]), **few)).is_lossless
    assert {*said} <= {"ab", "cd"}
    assert said


@pytest.mark.parametrize("num_different", [0, 1])
def test_the_command_ends_with_1_where_a_bit_differs(monkeypatch, capsys, num_different):
    row = ExactRow("full", "suffix", 2, num_different, 1, 24, 12, 6)
    result = ExactResult({}, {}, (row,), ())
    monkeypatch.setattr(verify_command, "load_model", lambda *_, **__: None)
    monkeypatch.setattr(verify_command, "check_exact", lambda *_: result)
    assert main(["verify", "tiny", "--exact", "--json"]) == num_different
    assert json.loads(capsys.readouterr().out)["is_lossless"] is (num_different == 0)
