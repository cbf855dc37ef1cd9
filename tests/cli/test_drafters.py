"""The command line around drafters: what `--drafter` takes, and where the choice is told."""

import json

import pytest

from mlxspec.drafting import auto, heads
from mlxspec_cli.main import main
from tests.support.drafter_files import medusa_parts, nonsense_parts, save_drafter
from tests.support.machine import trial_of
from tests.support.model_folders import save_folder


@pytest.fixture
def generate(tmp_path, monkeypatch, capsys):
    """Run `mlxspec generate` on a tiny model; return code, standard output and error."""
    monkeypatch.setenv("MLXSPEC_HOME", str(tmp_path / "home"))
    speeds = {"none": 10, "pool": 20}
    monkeypatch.setattr(
        auto, "short_trial", lambda engine, text, drafter, **_: trial_of(speeds[drafter.name])
    )
    monkeypatch.setattr(heads, "_TOKENS_PER_PROMPT", 12)
    folder = save_folder(tmp_path / "tiny")

    def run(*arguments):
        code = main(
            ["generate", "--model", str(folder), "--prompt", "abc", "--max-tokens", "6", *arguments]
        )
        out, err = capsys.readouterr()
        return code, out, err

    return run


def test_json_tells_which_drafter_auto_took_and_why(generate):
    code, out, _ = generate("--json")
    assert code == 0
    assert json.loads(out)["stats"]["drafter_choice"] == {
        "drafter": "pool",
        "reason": "fastest of 2 on this machine (x the speed in 3 greedy laps: pool 2.00, "
        "none 1.00; spread 0%)",
        "tokens_per_s": {"none": 10.0, "pool": 20.0},
    }


def test_the_summary_tells_it_too_and_says_before_that_it_is_measured(generate):
    _, out, err = generate()
    assert "measuring" not in out
    assert "mlxspec: measuring which drafter is fastest here ...\n" in err
    assert "pool: 6 tokens" in err
    assert "pool was fastest of 2" in err


def test_a_file_drafts_as_requested_and_nothing_is_measured(generate, tmp_path):
    path = save_drafter(tmp_path / "medusa.safetensors", "medusa", *medusa_parts())
    code, out, err = generate("--drafter", str(path), "--json")
    stats = json.loads(out)["stats"]
    assert (code, stats["drafter"]) == (0, "medusa")
    assert stats["drafter_choice"]["reason"] == "as requested"
    assert "measuring" not in err


def test_a_head_that_does_not_fit_is_said_on_standard_error_in_one_line(generate, tmp_path):
    path = save_drafter(tmp_path / "odd.safetensors", "medusa", *nonsense_parts())
    code, _, err = generate("--drafter", str(path))
    assert code == 0
    assert err.count("warning:") == 1
    assert "0% of" in err


@pytest.mark.parametrize(
    ("drafter", "code", "message"),
    [
        ("ngram", 2, "drafter 'ngram' is not known; choose from none, suffix"),
        ("suffix,none", 2, "the drafter 'none' stands alone"),
        ("eagle3", 1, "train one with `mlxspec train eagle3`"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(generate, drafter, code, message):
    found, out, err = generate("--drafter", drafter)
    assert (found, out) == (code, "")
    assert message in err
    assert err.count("\n") == 1
