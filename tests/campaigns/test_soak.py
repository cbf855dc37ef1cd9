"""The soak: it uses the app as it should, and sees growth where there is some."""

import pytest

from tests.campaigns import soak
from tests.campaigns.soak_figures import BOUNDS, PROBE, read_lines, summary, theil_sen
from tests.support.chat_folders import save_chat_folder

STEADY = {bound.name: 100.0 for bound in BOUNDS}
SHOWN = {"mlx_peak_mb": 1.0, "ms_per_token": 1.0, "first_ms": 1.0, "garbage": 0}


def line(number, **figures):
    turn = {"hours": number / 40, "turn": number, "action": PROBE, "tokens": 24}
    return turn | STEADY | SHOWN | figures


def test_a_soak_of_a_few_turns(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(soak, "_WEIGHTS", {"say": 3, "draft": 1, "again": 1, "setting": 1})
    out = tmp_path / "soak.jsonl"
    folder = str(save_chat_folder(tmp_path / "tiny"))
    soak.main(["--turns", "8", "--model", folder, "--out", str(out)])
    lines = read_lines(out)
    assert [turn["turn"] for turn in lines] == list(range(8))
    probes = [turn for turn in lines if turn["action"] == PROBE]
    assert [turn["turn"] for turn in probes] == [0, 6]
    for turn in probes:
        assert turn["model"] == "tiny"
        assert turn["tokens"] == 24
        assert turn["first_cpu_ms"] > 0
        assert turn["rss_mb"] > turn["mlx_active_mb"] > 0
    assert any(turn["action"] == "say" and turn["tokens"] > 0 for turn in lines)
    assert "too few probes for a verdict" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("figures", "verdict"),
    [
        ({}, "steady"),
        ({"first_cpu_ms": lambda number: 9e3 if number % 5 == 0 else 100.0}, "steady"),
        ({"rss_mb": lambda number: 100.0 if number < 20 else 131.0}, "rss_mb grew beyond bounds"),
        ({"threads": lambda number: 100.0 + number // 20}, "threads grew beyond bounds"),
        ({"files": lambda number: 100.0 + number // 20}, "files grew beyond bounds"),
        (
            {"first_cpu_ms": lambda number: 100.0 if number < 20 else 136.0},
            "first_cpu_ms grew beyond bounds",
        ),
    ],
    ids=["nothing", "wild now and then", "memory", "threads", "files", "time"],
)
def test_growth_of_probes_beyond_a_bound_is_named(figures, verdict):
    lines = [line(n, **{name: of(n) for name, of in figures.items()}) for n in range(40)]
    others = [line(40 + n, action="say", rss_mb=9e3) for n in range(40)]  # not judged
    text, is_steady = summary(lines + others)
    assert text.endswith(f"verdict: {verdict}")
    assert is_steady == (verdict == "steady")


def test_the_slope_is_the_median_of_all_pairs():
    # slopes of the pairs: 1, 2, 10 from the first, 3, 14.5 from the second, 26
    points = [(0.0, 0.0), (1.0, 1.0), (2.0, 4.0), (3.0, 30.0)]
    assert theil_sen(points) == pytest.approx((3.0 + 10.0) / 2)


def test_a_line_that_was_cut_off_is_passed_over(tmp_path):
    path = tmp_path / "soak.jsonl"
    path.write_text('{"turn": 0}\n{"turn": 1, "act')
    assert read_lines(path) == [{"turn": 0}]
