"""What is said of a report beside what the tests assume, and of files that are none."""

import json
import os
import subprocess
import sys
from copy import deepcopy
from dataclasses import replace

import pytest

from mlxspec.report.chips import CURVES, curve_of
from mlxspec.report.document import FORMAT, Record, Report, ReportError, read_report, to_text
from mlxspec.report.reading import compare, is_lossless
from mlxspec_cli.main import main
from tests.support.reports import FOUND, save_report, sound_records


def changed(*place, to):
    """A sound report but for what stands at one place."""
    records = deepcopy(sound_records())
    part, *names = place
    here = records[part].found
    for name in names[:-1]:
        here = here[name]
    if to is None:
        del here[names[-1]]
    else:
        here[names[-1]] = to
    return Report(records)


def others(report):
    """The lines that are not as assumed."""
    return [str(line) for line in compare(report) if line.kind != "as assumed"]


def test_of_a_sound_mac_everything_is_as_assumed():
    lines = compare(Report(sound_records()))
    assert [str(line) for line in lines if line.kind != "as assumed"] == []
    assert len(lines) > 40
    assert is_lossless(lines)


@pytest.mark.parametrize(
    ("place", "value", "said"),
    [
        (("first_frame", "median_s"), 0.3, "differs       the app's first frame comes within 0.25"),
        (("first_frame", "median_s"), None, "not measured  the app's first frame"),
        (
            ("machine", "max_recommended_working_set_size_gb"),
            24.0,
            "differs       a GPU may use 93% of 26 GB",
        ),
        (
            ("forwards", "behind 256 tokens"),
            {"rows": [1, 2, 4], "ms": [2.0, 3.0, 2.5]},
            "differs       forwards behind 256 tokens: more rows cost more (4 rows less than 2): "
            "1: 1.00  2: 1.50  4: 1.25",
        ),
        (("products", "16-bit 576x576"), None, "not measured  1 of 18 curves of products"),
        (
            ("attention", "9 of 64, 1024 keys, an array"),
            {"rows": [1], "ms": [2.0]},
            "not measured  1 of 8 curves of attention",
        ),
        (
            ("products", "4-bit 4096x4096"),
            {"rows": [1, 2, 4, 8], "ms": [1.0, 2.0, 4.0, 8.0]},
            "differs       4-bit 4096x4096 costs by rows what was published, M4 Pro (mlx #3839): "
            "2 rows 2.00, published 1.03",
        ),
        (("drift", "float16", "is_finite"), False, "differs       float16 holds the numbers"),
        (
            ("drift", "float32", "near_tie"),
            0.002,
            "differs       gaps that are near-ties in float32 are at most 0.001: 0.002",
        ),
        (
            ("drift", "bfloat16", "near_tie"),
            2.5,
            "differs       gaps that are near-ties in bfloat16",
        ),
        (
            ("replies", "pool", "tokens_per_s"),
            150.0,
            "differs       pool is no slower than plain decoding: 0.75 times its tokens/s",
        ),
        (("machine", "backend"), "cpu", "not measured  a Mac's GPU: this is cpu on Apple M4 Pro"),
        (("lossless", "verdict"), "not lossless", "BROKEN        identical up to near-ties"),
        (
            ("forwards_200_operations", "behind 256 tokens"),
            {"rows": [1], "ms": [1.5]},
            "differs       the size of command buffers in force is as fast as any: a row takes "
            "2.00 ms, 1.50 in forwards_200_operations",
        ),
    ],
)
def test_what_is_otherwise_has_its_line(place, value, said):
    lines = others(changed(*place, to=value))
    assert any(line.startswith(said) for line in lines), lines


@pytest.mark.parametrize(
    ("same", "gaps", "near_tie", "kind"),
    [
        (3, [], 0.004, "as assumed"),
        (2, [0.003], 0.004, "as assumed"),
        (2, [0.004], 0.004, "as assumed"),
        (1, [0.003, 0.005], 0.004, "BROKEN"),
        (2, [0.0], 0.0, "BROKEN"),  # where nothing drifts nothing is excused
        (2, [None], 0.004, "BROKEN"),  # one of the two just ends
        (1, [0.001, None], 0.004, "BROKEN"),
        (1, [0.001], 0.004, "BROKEN"),
        (2, [0.003], None, "not measured"),
    ],
)
def test_a_reply_that_leaves_plain_decoding_needs_a_near_tie(same, gaps, near_tie, kind):
    report = changed("lossless", "greedy", "near_tie", to=near_tie)
    report.records["replies"].found["pool"] |= {"the_same": same, "gaps": gaps}
    found = [line for line in compare(report) if "replies of pool, drafting as" in line.text]
    assert [line.kind for line in found] == [kind]
    assert is_lossless(compare(report)) == (kind != "BROKEN")


def test_without_a_verdict_the_replies_that_there_are_are_judged():
    report = changed("lossless", "verdict", to=None)
    report.records["lossless"].found["greedy"]["drafters"]["pool"] |= {
        "the_same": 2,
        "gaps": [0.5],
    }
    lines = others(report)
    assert any("BROKEN        replies of pool, drafting in every round" in line for line in lines)
    assert any("there is no verdict" in line for line in lines)


def test_a_part_that_did_not_end_well_is_named_with_its_reason():
    records = sound_records()
    records["products"] = replace(records["products"], status="failed", reason="signal 6: memory")
    records["drift"] = Record("not run", reason="no time was left")
    lines = others(Report(records))
    assert "not measured  products, or not all of it: failed (signal 6: memory)" in lines
    assert "not measured  drift, or not all of it: not run (no time was left)" in lines


def test_an_empty_report_says_that_nothing_was_measured():
    assert {line.kind for line in compare(Report({}))} == {"not measured"}


@pytest.mark.parametrize(
    ("device", "begins"),
    [
        ("Apple M1", "M1, M2"),
        ("Apple M2 Max", "M1, M2"),
        ("Apple M3", "M3 Ultra"),
        ("Apple M4 Pro", "M4 Pro"),
        ("Apple M5", "M5 Max"),
        ("Apple M10", ""),
        ("AMD EPYC", ""),
    ],
)
def test_a_chip_is_compared_with_its_generation(device, begins):
    assert curve_of(device).startswith(begins)
    assert bool(curve_of(device)) == bool(begins)


def test_a_chip_within_a_quarter_of_what_was_published_is_as_assumed():
    """On an M1 rows cost as much each: 8 rows 8.0."""
    name = next(iter(CURVES))
    report = changed("machine", "device", to="Apple M1")
    for ratio, kind in (
        (8.0, "as assumed"),
        (6.1, "as assumed"),
        (5.9, "differs"),
        (10.1, "differs"),
    ):
        report.records["products"].found["4-bit 4096x4096"] = {"rows": [1, 8], "ms": [1, ratio]}
        lines = [line for line in compare(report) if f"published, {name}: 8 rows" in line.text]
        assert [line.kind for line in lines] == [kind]


# ---- files that are none -----------------------------------------------------------------------


def parts():
    return json.loads(to_text(sound_records()))["parts"]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is not a report"),
        (b"\xff\xfe\x00", "is not a report"),
        (b"[]", "is not a report"),
        (b'{"format": "another"}', "is not a report"),
        (b'{"format": 1', "is not a report"),
        (b"[" * 100_000, "is not a report"),
        (
            json.dumps({"format": FORMAT, "version": 2}).encode() + b" " * 5_000_000,
            "is not a report",
        ),
        (json.dumps({"format": FORMAT, "version": 2}).encode(), "of version 2, and this mlxspec"),
        (json.dumps({"format": FORMAT}).encode(), "of version None"),
        (json.dumps({"format": FORMAT, "version": 1}).encode(), "'parts' cannot be read"),
    ],
)
def test_a_foreign_or_torn_file_is_a_sentence_and_1(tmp_path, capsys, content, said):
    path = tmp_path / "mac.json"
    path.write_bytes(content)
    assert main(["doctor", "--read-report", str(path)]) == 1
    err = capsys.readouterr().err
    assert said in err
    assert "Traceback" not in err


def test_a_file_that_is_not_there_is_a_sentence_and_1(tmp_path, capsys):
    assert main(["doctor", "--read-report", str(tmp_path / "no.json")]) == 1
    assert "no.json cannot be read: No such file" in capsys.readouterr().err
    assert main(["doctor", "--read-report", str(tmp_path)]) == 1
    assert "cannot be read: Is a directory" in capsys.readouterr().err


def places(content, way=()):
    """Every place in nested dicts and lists."""
    yield way
    if isinstance(content, dict | list):
        for key in content if isinstance(content, dict) else range(len(content)):
            yield from places(content[key], (*way, key))


WRONG = ("x", -1, 1e300, True, [], [1, "x"], {}, {"x": [{}]}, [[]])


@pytest.mark.parametrize("part", list(FOUND))
def test_a_value_of_another_type_is_a_report_error_or_a_line_and_never_more(part, tmp_path):
    """One place after the other holds something else than it should."""
    content, told = {part: parts()[part]}, set()
    found = content[part]["found"]
    content[part]["found"] = dict([*found.items()][-3:])  # of many curves some
    for way in list(places(content)):
        for value in WRONG:
            damaged = {"all": deepcopy(content)}
            here = damaged
            for key in ("all", *way[:-1]):
                here, last = here[key], key
            if way:
                here[way[-1]] = value
            else:
                damaged[last] = value
            try:
                compare(read_report(save_report(tmp_path / "mac.json", damaged["all"])))
            except ReportError as error:
                told.add(str(error))
    assert len(told) > 2
    assert all("cannot be read. Ask for the file again" in words for words in told)


@pytest.mark.parametrize("value", [-1, 1e300, float("inf"), float("nan"), True, "1"])
def test_a_figure_is_finite_and_not_negative(value):
    report = Report({"machine": Record("done", found={"memory_gb": value})})
    with pytest.raises(ReportError, match="'machine / memory_gb' cannot be read"):
        report.number("machine", "memory_gb")


@pytest.mark.parametrize(
    "curve",
    [
        {"rows": [1, 4, 2], "ms": [1, 2, 3]},
        {"rows": [1, 2, 2], "ms": [1, 2, 3]},
        {"rows": [2, 4], "ms": [1, 2]},
        {"rows": [1, 2], "ms": [1, 2, 3]},
        {"rows": [1, 2], "ms": [0, 1]},
        {"rows": [], "ms": []},
        {"rows": [1, 2]},
    ],
)
def test_a_curve_that_is_none_is_damage(curve):
    with pytest.raises(ReportError, match="'forwards / behind 256 tokens' cannot be read"):
        compare(changed("forwards", "behind 256 tokens", to=curve))


def test_a_lossless_failure_is_exit_code_1(tmp_path, capsys):
    path = tmp_path / "mac.json"
    path.write_text(to_text(changed("lossless", "verdict", to="not lossless").records))
    assert main(["doctor", "--read-report", str(path)]) == 1
    assert "BROKEN" in capsys.readouterr().out
    path.write_text(to_text(changed("first_frame", "median_s", to=9.0).records))
    assert main(["doctor", "--read-report", str(path)]) == 0


def test_what_a_foreign_file_says_cannot_move_the_terminal(tmp_path, capsys):
    content = parts()
    content["machine"]["found"] |= {"device": "\x1b[2Jchip", "backend": "\x1b]0;x\x07"}
    main(["doctor", "--read-report", str(save_report(tmp_path / "mac.json", content))])
    assert "\x1b" not in capsys.readouterr().out


def test_a_report_is_read_without_mlx(tmp_path):
    path = tmp_path / "mac.json"
    path.write_text(to_text(sound_records()))
    code = (
        "import sys; sys.modules['mlx'] = sys.modules['mlx.core'] = None; "
        "from mlxspec_cli.main import main; "
        "sys.exit(main(['doctor', '--read-report', sys.argv[1]]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "as assumed    identical up to near-ties" in done.stdout
