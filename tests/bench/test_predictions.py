"""Predicted replies in a bench: the predictions of a text, and the table."""

import json

import pytest

from mlxspec.bench.predictions import predictions
from mlxspec_cli.main import main
from tests.support.gguf_files import tiny_config
from tests.support.model_folders import save_folder

TEXT = " ".join(f"word{n}" for n in range(450))  # lines of three words


def changed_words(text):
    """How many words of a prediction are not those of the text."""
    return sum(one != other for one, other in zip(text.split(" "), TEXT.split(" "), strict=True))


def test_predictions_are_the_text_with_so_many_of_150_lines_changed():
    five, third, other = predictions(TEXT).values()
    assert changed_words(five) == 5 * 3
    assert changed_words(third) == 50 * 3
    assert changed_words(other) == 150 * 3


def test_a_text_of_a_few_words_is_changed_too():
    assert set(predictions("one two").values()) != {"one two"}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("MLXSPEC_HOME", str(tmp_path / "home"))
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
    assert {row["prediction"] for row in rows} == {"none", *predictions("")}
    assert all(row["ratio"] > 0 and row["difference"] is None for row in rows)
    (plain,) = [row for row in rows if (row["arm"], row["prediction"]) == ("plain", "none")]
    assert (plain["tokens_per_forward"], plain["accepted"]) == (1.0, 0)
