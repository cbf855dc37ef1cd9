"""Predicted replies in a bench: the file, its predictions, and the table."""

import json

import pytest

from mlxspec.bench.predictions import file_lines, predictions, prompt_text
from mlxspec_cli.main import main
from tests.support.gguf_files import tiny_config
from tests.support.model_folders import save_folder


def changed_lines(text, lines):
    return sum(one != other for one, other in zip(text.split("\n"), lines, strict=True))


def test_the_file_has_150_lines_and_none_twice():
    assert len(set(file_lines())) == 150


def test_predictions_are_the_rest_of_the_file_with_so_many_lines_changed():
    rest = file_lines()[4:]
    five, third, other = predictions().values()
    assert changed_lines(five, rest) == 5
    assert changed_lines(third, rest) == 49  # of 146, which begin with one that stays
    assert not set(other.split("\n")) & set(rest)
    assert prompt_text().endswith("\n".join(file_lines()[:4]) + "\n")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("MLXSPEC_HOME", str(tmp_path / "home"))
    monkeypatch.setattr("mlxspec.bench.predictions._NUM_LINES", 40)
    return str(save_folder(tmp_path / "tiny", tiny_config(max_position_embeddings=8192)))


def test_every_arm_is_measured_with_every_prediction(folder, capsys):
    words = ["bench", folder, "--predictions", "--arms", "plain,suffix", "--max-tokens", "8"]
    assert main(words) == 0
    out = capsys.readouterr().out
    assert out.count("that of plain") == 8
    assert "5 lines changed" in out
    assert main([*words, "--json", "--repeat", "2"]) == 0
    rows = json.loads(capsys.readouterr().out)["predictions"]
    assert [row["arm"] for row in rows[:1]] == ["plain"]
    assert {row["prediction"] for row in rows} == {"none", *predictions()}
    assert all(row["ratio"] > 0 and row["difference"] is None for row in rows)
    (plain,) = [row for row in rows if (row["arm"], row["prediction"]) == ("plain", "none")]
    assert (plain["tokens_per_forward"], plain["accepted"]) == (1.0, 0)
