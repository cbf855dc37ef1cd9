"""The shared figures of a run, and the table of them; files may come from anybody."""

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from mlxspec.bench.prompts import Question
from mlxspec.bench.report import BenchResult
from mlxspec.bench.run import Case, Row
from mlxspec.bench.sample import Reply
from mlxspec.budget import CostCurve
from mlxspec.report import scrubbing
from mlxspec.report.board import main, page
from mlxspec.report.shared import (
    SharedArm,
    SharedFigures,
    SharedFileError,
    read_shared,
    shared_figures,
    to_text,
)
from mlxspec.trace.difference import Difference
from tests.support.paths import ROOT

SECRET = "my own question about Berlin"
SETUP = {
    "model": "Tiny",
    "weights": "float32",
    "device": "Some CPU, 2 cores, 25 GB",
    "system": "Linux 6.18.44-own-kernel x86_64",
    "blas": "OpenBLAS",
    "versions": {"mlxspec": "1.0", "mlx": "0.32.4"},
}
ARM = SharedArm("pool", 0.0, 1.9, 40.5, 2.3, 1.25, 12, 11, 1)
FIGURES = SharedFigures(
    "2026-01-31", "CPU", "Linux", "", {"mlx": "1"}, "Tiny", "f32", "plain", {1: 2.0, 4: 3.0}, [ARM]
)


def reply(seconds):
    return Reply((1, 2, 3), 5, ttft_s=0.1, first_tokens=1, seconds=seconds, forwards=2, rows=4)


def result(temps=(0.0,), differences=(None,)):
    question = Question("7", "qa", (SECRET,))
    rows = []
    for temp in temps:
        case = Case(question, temp, 0)
        rows += [
            Row(case, "plain", (reply(2.0),)),
            Row(case, "pool", (reply(1.0),), tuple(differences) if temp == 0 else ()),
        ]
    return BenchResult(SETUP, rows, ["plain", "pool"], "plain", CostCurve({1: 2.0, 4: 3.0}))


def saved(path, figures, **changes):
    path.write_text(json.dumps(json.loads(to_text(figures)) | changes))
    return path


def test_a_file_holds_what_was_measured_and_is_read_as_it_was_written(tmp_path):
    figures = shared_figures(result((0.0, 1.0)))
    assert read_shared(saved(tmp_path / "a.json", figures)) == figures
    plain, pool, _, sampled = figures.arms
    assert (plain.ratio, pool.ratio) == (1.0, 2.0)
    assert (plain.tokens_per_s, pool.tokens_per_s) == (1.0, 2.0)
    assert pool.tokens_per_forward == 1.5
    assert (plain.identical, pool.identical, sampled.identical) == (None, 1, None)
    assert (pool.near_ties, sampled.near_ties) == (0, None)
    assert figures.curve == {1: 2.0, 4: 3.0}


def test_a_reply_that_parts_is_not_counted_as_identical():
    tie = Difference(2, 5, 6, gap=0.01, near_tie=0.5)
    fault = Difference(2, 5, 6, gap=3.0, near_tie=0.5)
    tied, wrong = (shared_figures(result(differences=(found,))).arms[1] for found in (tie, fault))
    assert (tied.identical, tied.near_ties) == (0, 1)
    assert (wrong.identical, wrong.near_ties) == (0, 0)


def test_a_file_holds_nothing_private(monkeypatch):
    monkeypatch.setattr(scrubbing, "own_names", lambda: {"ada-laptop", "ada"})
    private = SETUP | {"model": "/home/ada/secret models/x.gguf", "device": "ada-laptop CPU"}
    text = to_text(shared_figures(replace(result(), setup=private)))
    for word in (SECRET, "Berlin", "ada", "/home", "secret", "own-kernel", '"tokens"'):
        assert word not in text
    assert "Linux x86_64" in text


@pytest.mark.parametrize(
    "changes",
    [
        {"day": "yesterday"},
        {"device": "a\x1b[2J"},
        {"device": "a" * 121},
        {"device": 3},
        {"versions": ["1"]},
        {"versions": {str(number): "1" for number in range(65)}},
        {"curve": {"rows": [1, 4], "ms": [2.0]}},
        {"curve": {"rows": [4, 1], "ms": [2.0, 3.0]}},
        {"curve": {"rows": [1, 4], "ms": [2.0, -3.0]}},
        {"curve": None},
        {"arms": [asdict(ARM) | {"ratio": "fast"}]},
        {"arms": [asdict(ARM) | {"tokens_per_s": float("inf")}]},
        {"arms": [{"arm": "pool"}]},
        {"arms": [None]},
        {"arms": [asdict(ARM)] * 65},
        {"model": None},
    ],
)
def test_a_damaged_file_is_refused_in_one_sentence(changes, tmp_path):
    path = saved(tmp_path / "a.json", FIGURES, **changes)
    with pytest.raises(SharedFileError, match=r"is damaged: .* Measure again") as found:
        read_shared(path)
    assert "\n" not in str(found.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "holds no figures"),
        ("[1]", "holds no figures"),
        ("[" * 100_000, "holds no figures"),
        (json.dumps({"format": "another"}), "holds no figures"),
        (to_text(FIGURES) + " " * 65_000, "holds no figures"),
        (json.dumps({"format": "mlxspec shared figures", "version": 2}), r"version '2'; .* reads"),
    ],
)
def test_another_file_is_refused_by_what_it_is(content, message, tmp_path):
    path = tmp_path / "a.json"
    path.write_text(content)
    with pytest.raises(SharedFileError, match=message):
        read_shared(path)


def test_a_file_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(SharedFileError, match="cannot be read: No such file"):
        read_shared(tmp_path / "none.json")


def test_the_table_has_a_row_for_every_arm():
    other = replace(FIGURES, arms=[replace(ARM, arm="plain", identical=None, near_ties=None), ARM])
    lines = page([other]).splitlines()[-2:]
    assert "| plain | 0 | 40.5 | 1.90 | 2.30 |  | 1.50 | 2026-01-31 |" in lines[0]
    assert "| pool | 0 | 40.5 | 1.90 | 2.30 | 11 of 12, 1 part at a near-tie | 1.50 |" in lines[1]


def test_text_of_a_file_cannot_write_markup_into_the_page():
    line = page([replace(FIGURES, model="a|b [x](http://y) <b>")]).splitlines()[-1]
    assert "a\\|b \\[x\\](http://y) \\<b\\>" in line
    assert "a|b" not in line


def test_the_page_is_written_in_the_order_of_the_names_of_the_files(tmp_path):
    saved(tmp_path / "2.json", replace(FIGURES, device="second"))
    saved(tmp_path / "1.json", replace(FIGURES, device="first"))
    out = tmp_path / "board.md"
    assert main([str(tmp_path), str(out)]) == 0
    first, second = out.read_text().splitlines()[-2:]
    assert "first" in first
    assert "second" in second


def test_a_bad_file_leaves_the_page_as_it_is(tmp_path, capsys):
    (tmp_path / "1.json").write_text("{}")
    out = tmp_path / "board.md"
    assert main([str(tmp_path), str(out)]) == 2
    assert "holds no figures" in capsys.readouterr().err
    assert not out.exists()


def test_the_page_of_this_project_is_up_to_date():
    board: Path = ROOT / "docs" / "board"
    rows = [read_shared(path) for path in sorted(board.glob("*.json"))]
    assert rows
    expected = page(rows)
    text = (ROOT / "docs" / "board.md").read_text(encoding="utf-8")
    assert text == expected, "run `python -m mlxspec.report.board docs/board docs/board.md`"
