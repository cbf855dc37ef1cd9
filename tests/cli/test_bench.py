"""`mlxspec bench` from the outside, on a tiny model."""

import json
import sys

import pytest

from mlxspec.bench.arms import CHANGES, OwnArm
from mlxspec.bench.run import Runner
from mlxspec_cli.main import main
from tests.support.model_folders import save_folder
from tests.support.question_file import save_questions


@pytest.fixture
def bench(tmp_path, monkeypatch, capsys):
    """Run `mlxspec bench`; return code, standard output (or what its JSON says), standard error."""
    monkeypatch.setenv("MLXSPEC_HOME", str(tmp_path / "home"))
    folder = save_folder(tmp_path / "tiny")
    path = save_questions(tmp_path)

    def run(*arguments, arms="plain,suffix", as_json=False):
        words = ["bench", str(folder), "--prompts", str(path), "--max-tokens", "8"]
        code = main([*words, "--arms", arms, *arguments, *(["--json"] if as_json else [])])
        out, err = capsys.readouterr()
        return code, json.loads(out) if as_json else out, err

    return run


def test_arms_and_peers_are_compared_in_tables_alone(bench, monkeypatch):
    monkeypatch.setitem(sys.modules, "mlx_dspark", None)
    code, out, err = bench("--against", "mlx-lm,mlx-dspark", "--categories", "qa")
    assert code == 0
    assert "one forward, by rows verified:\nrows " in out
    assert "suffix: 2 of 2 greedy replies are those of plain" in out
    assert "mlx-lm: 2 of 2 greedy replies are those of plain" in out
    assert "{" not in out
    assert "prompt" in err  # the progress
    assert out.count("pip install mlx-dspark") == err.count("pip install mlx-dspark") == 1


def test_arms_and_peers_are_compared_in_one_document(bench):
    words = ("--against", "mlx-lm", "--temps", "0,1", "--categories", "qa", "--baseline", "suffix")
    code, last, _ = bench(*words, as_json=True)
    assert code == 0
    assert set(last["results"]) == {"0.0", "1.0"}
    figures = {figures["arm"]: figures for figures in last["results"]["0.0"]}
    assert list(figures) == ["plain", "suffix", "mlx-lm"]
    assert len(last["rows"]) == 3 * 2
    assert figures["plain"]["tokens_per_forward"] == 1.0
    assert figures["suffix"]["categories"]["qa"]["median"] == 1.0
    assert last["baseline"] == "suffix"
    assert not last["is_partial"]


def test_a_reply_that_differs_for_no_reason_fails_the_run(bench, monkeypatch):
    write = OwnArm.write

    def lying(arm, prompt, params):
        reply = write(arm, prompt, params)
        if arm.name == "suffix":
            object.__setattr__(reply, "tokens", (*reply.tokens[:-1], (reply.tokens[-1] + 1) % 3))
        return reply

    monkeypatch.setattr(OwnArm, "write", lying)
    code, out, _ = bench("--categories", "copy")
    assert code == 1
    assert "parts after 7 tokens" in out
    code, last, _ = bench("--categories", "copy", as_json=True)
    assert code == 1
    assert last["has_real_difference"]


def test_an_interrupted_run_prints_what_is_finished_and_goes_on_from_there(
    bench, monkeypatch, tmp_path
):
    file = tmp_path / "rows.jsonl"
    rows, asked = Runner.rows, []

    def interrupted(runner, case, *more):
        asked.append(case.question.id)
        if len(asked) == 2:
            raise KeyboardInterrupt
        return rows(runner, case, *more)

    monkeypatch.setattr(Runner, "rows", interrupted)
    code, out, _ = bench("--out", str(file))
    assert code == 130
    assert "interrupted: these are the 2 conversations so far" in out
    monkeypatch.setattr(Runner, "rows", rows)
    code, last, _ = bench("--out", str(file), "--resume", as_json=True)
    assert (code, len(last["rows"])) == (0, 6)
    assert len(file.read_text().splitlines()) == 6
    bench("--out", str(file), "--resume", "--against", "mlx-lm")
    assert len(file.read_text().splitlines()) == 9


def test_a_question_that_does_not_fit_is_left_out_by_name(bench):
    code, out, _ = bench("--max-tokens", "2000", "--categories", "copy")
    assert code == 0
    assert "copy 83, T=0 is skipped" in out


def test_a_profile_tells_where_the_time_goes(bench):
    code, out, _ = bench("--profile")
    assert code == 0
    assert "suffix: 8 tokens in" in out
    code, last, _ = bench("--profile", as_json=True)
    assert code == 0
    assert "wait for the device" in last["rounds"]["ms"]


def test_contexts_beyond_the_model_get_a_rotating_cache(bench):
    code, last, _ = bench("--context", "16,600", arms="plain", as_json=True)
    assert code == 0
    assert [found["context"] for found in last["contexts"]] == [16, 600]
    assert [found["cache"] for found in last["contexts"]] == ["full", "rotating 4096 (4 kept)"]
    assert all(found["ms_per_token"] > 0 for found in last["contexts"])


def test_predictions_are_arms_beside_plain_decoding(bench):
    code, last, _ = bench("--predictions", as_json=True)
    assert code == 0
    arms = [found["arm"] for found in last["results"]["0.0"]]
    assert arms == ["plain", "suffix", *(f"suffix, {change}" for change in CHANGES)]
    assert not last["has_real_difference"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--resume",), "name it with --out"),
        (("--temps", "warm"), "--temps takes temperatures"),
        (("--temps", "-1"), "--temps must be from 0 to 2"),
        (("--temps", "0,9"), "--temps must be from 0 to 2, as more is noise; got 9.0"),
        (("--repeat", "0"), "--repeat must be 1 or more"),
        (("--limit", "0"), "1 or more; got 0"),
        (("--categories", "chat"), "category 'chat' is not there"),
        (("--against", "vllm"), "peer 'vllm' is not known"),
        (("--baseline", "eagle"), "the baseline 'eagle' is not an arm"),
        (("--context", "far"), "--context takes numbers"),
        (("--arms", ""), "--arms is empty"),
        (("--k", "-1"), "num_draft_tokens must be from 0"),
    ],
)
def test_a_wrong_argument_is_one_line_and_2(bench, arguments, message):
    code, _, err = bench(*arguments)
    assert code == 2
    assert message in err
    assert "Traceback" not in err
