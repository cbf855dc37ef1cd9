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


def test_a_soak_of_a_dozen_turns(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(soak, "_WEIGHTS", {"say": 3, "draft": 1, "again": 1, "setting": 1})
    out = tmp_path / "soak.jsonl"
    folder = str(save_chat_folder(tmp_path / "tiny"))
    soak.main(["--turns", "12", "--model", folder, "--out", str(out)])
    lines = read_lines(out)
    assert [turn["turn"] for turn in lines] == list(range(12))
    probes = [turn for turn in lines if turn["action"] == PROBE]
    assert [turn["turn"] for turn in probes] == [0, 6]
    for turn in probes:
        assert turn["model"] == "tiny"
        assert turn["tokens"] == 24
        assert turn["first_cpu_ms"] > 0
        assert turn["rss_mb"] > turn["mlx_active_mb"] > 0
    assert any(turn["action"] == "say" and turn["tokens"] > 0 for turn in lines)
    assert "too few probes for a verdict" in capsys.readouterr().out


def test_a_soak_in_which_nothing_grows_is_steady():
    text, is_steady = summary([line(number) for number in range(40)])
    assert is_steady
    assert text.endswith("verdict: steady")


@pytest.mark.parametrize(
    ("name", "grown"),
    [("rss_mb", 131.0), ("threads", 101.0), ("files", 101.0), ("first_cpu_ms", 136.0)],
)
def test_growth_beyond_its_bound_is_found_and_named(name, grown):
    lines = [line(number, **{name: 100.0 if number < 20 else grown}) for number in range(40)]
    text, is_steady = summary(lines)
    assert not is_steady
    assert text.endswith(f"verdict: {name} grew beyond bounds")


def test_a_figure_that_is_wild_now_and_then_does_not_grow():
    lines = [line(number, first_cpu_ms=9e3 if number % 5 == 0 else 100.0) for number in range(40)]
    assert summary(lines)[1]


def test_other_turns_than_probes_are_not_judged():
    lines = [line(number) for number in range(40)]
    lines += [line(40 + number, action="say", rss_mb=9e3) for number in range(40)]
    assert summary(lines)[1]


def test_the_slope_is_the_median_of_all_pairs():
    # slopes of the pairs: 1, 2, 10 from the first, 3, 14.5 from the second, 26
    points = [(0.0, 0.0), (1.0, 1.0), (2.0, 4.0), (3.0, 30.0)]
    assert theil_sen(points) == pytest.approx((3.0 + 10.0) / 2)


def test_a_line_that_was_cut_off_is_passed_over(tmp_path):
    path = tmp_path / "soak.jsonl"
    path.write_text('{"turn": 0}\n{"turn": 1, "act')
    assert read_lines(path) == [{"turn": 0}]
