"""Making a report: parts that end well, badly, late or not at all, and what the file holds."""

import getpass
import json
import os
import platform
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from mlxspec.budget import CostCurve
from mlxspec.report import collect as collecting
from mlxspec.report.allowance import Allowance, curve_dict
from mlxspec.report.collect import collect, command_of, run_part
from mlxspec.report.document import Record, ReportError, read_report, to_text
from mlxspec.report.plan import GRACE_S, PARTS, SECONDS, Part, parts_for
from mlxspec.report.scrubbing import own_names, scrubbed
from mlxspec_cli.main import main
from tests.support.reports import sound_records

FIRST, SECOND, THIRD = (Part(name, 100, f"the {name}") for name in ("first", "second", "third"))


class Clock:
    """Goes on when it is told to."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


def program(text):
    """A process in place of a part's; what it prints is what it found."""
    return [sys.executable, "-c", f"import json, os, signal, sys, time\n{text}"]


def silent(line):
    pass


# ---- one part after the other ------------------------------------------------------------------


def test_every_part_is_measured_and_everything_is_saved_after_each():
    saved = []

    def run(part, seconds):
        return Record("done", 1.0, "", {part.name: 1})

    records = collect([FIRST, SECOND], lambda found: saved.append(dict(found)), silent, run=run)
    assert [records[name].found for name in ("first", "second")] == [{"first": 1}, {"second": 1}]
    assert [[found[name].status for name in found] for found in saved[:3]] == [
        ["not run", "not run"],
        ["done", "not run"],
        ["done", "done"],
    ]


def test_a_part_that_fails_is_told_and_stops_no_other():
    told = []
    outcomes = {"first": Record("failed", 1.0, "signal 6: short of memory")}

    def run(part, seconds):
        return outcomes.get(part.name, Record("done"))

    records = collect([FIRST, SECOND], silent, told.append, run=run)
    assert records["second"].status == "done"
    assert "first: failed: signal 6: short of memory" in told
    assert "1 of 2: the first, 100 s at most" in told


def test_an_interrupt_saves_what_there_is_and_ends_the_measurement():
    saved = []

    def run(part, seconds):
        assert part is not THIRD
        return Record("interrupted" if part is SECOND else "done", 1.0, "", {"figure": 5})

    with pytest.raises(KeyboardInterrupt):
        collect([FIRST, SECOND, THIRD], lambda found: saved.append(dict(found)), silent, run=run)
    assert [record.status for record in saved[-1].values()] == ["done", "interrupted", "not run"]
    assert saved[-1]["second"].found == {"figure": 5}


def test_no_part_takes_more_than_is_left_of_the_time_for_all():
    clock, allowed = Clock(), []

    def run(part, seconds):
        allowed.append(seconds)
        clock.now += seconds + GRACE_S
        return Record("out of time")

    parts = [FIRST, SECOND, THIRD]
    records = collect(parts, silent, silent, seconds=150, run=run, clock=clock)
    assert allowed == [100, 150 - 106 - GRACE_S]
    assert clock.now == 150
    assert records["third"] == Record("not run", reason="no time was left")


@pytest.mark.parametrize("is_mac", [True, False])
def test_all_parts_together_take_less_than_ten_minutes(is_mac):
    assert SECONDS == 600
    parts = parts_for(is_mac=is_mac)
    assert sum(part.seconds for part in parts) <= SECONDS - GRACE_S
    assert len({part.name for part in parts}) == len(parts)


def test_every_part_is_a_module_that_measures():
    folder = Path(collecting.__file__).parent / "parts"
    modules = {path.stem for path in folder.glob("*.py")} - {"__init__"}
    assert {part.module for part in PARTS} == modules
    assert all("\ndef measure(" in (folder / f"{name}.py").read_text() for name in modules)


# ---- a process for each ------------------------------------------------------------------------


def test_findings_are_the_lines_of_a_process():
    text = """
print(json.dumps(["a", {"b": [1, 2.5]}]), flush=True)
print("a library says something")
print(json.dumps(["setting", os.environ["MLX_MAX_OPS_PER_BUFFER"]]))
print('["torn", [1, 2')
"""
    part = Part("any", 60, "", settings={"MLX_MAX_OPS_PER_BUFFER": "200"})
    record = run_part(part, 60, command=program(text))
    assert (record.status, record.reason) == ("done", "")
    assert record.found == {"a": {"b": [1, 2.5]}, "setting": "200"}
    assert 0 < record.seconds < 60


def test_a_process_that_crashes_keeps_what_it_found():
    """As MLX ends a process, for good, where memory is short."""
    text = """
print(json.dumps(["a", 1]), flush=True)
print("Insufficient Memory", file=sys.stderr, flush=True)
os.abort()
"""
    record = run_part(FIRST, 60, command=program(text))
    assert record.status == "failed"
    assert record.reason == f"signal {signal.SIGABRT:d}: Insufficient Memory"
    assert record.found == {"a": 1}


def test_the_reason_of_an_error_is_its_last_line():
    record = run_part(FIRST, 60, command=program("raise ValueError('no such model')"))
    assert (record.status, record.found) == ("failed", {})
    assert record.reason == "exit code 1: ValueError: no such model"


@pytest.mark.parametrize("manner", ["", "signal.signal(signal.SIGINT, signal.SIG_IGN)\n"])
def test_a_process_that_takes_too_long_is_ended_and_keeps_what_it_found(manner, monkeypatch):
    monkeypatch.setattr(collecting, "_ENDS_IN_S", 0.3)
    text = f"{manner}print(json.dumps(['pid', os.getpid()]), flush=True)\ntime.sleep(60)"
    record = run_part(FIRST, 1.5, command=program(text), grace_s=0)
    assert (record.status, record.reason) == ("out of time", "it took more than 2 s")
    assert record.seconds < 30
    with pytest.raises(ProcessLookupError):
        os.kill(record.found["pid"], 0)


PARENT = """
import signal, sys
from mlxspec.report.collect import run_part
from mlxspec.report.plan import Part
signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background ignores it
print(run_part(Part("any", 60, ""), 60, command=[sys.executable, "-c", sys.argv[1]]))
"""
INTERRUPTING = (
    "import os, signal, time; print('[\"a\", 1]', flush=True); "
    "os.kill(os.getppid(), signal.SIGINT); time.sleep(60)"
)


def test_an_interrupt_during_a_part_keeps_what_it_found():
    done = subprocess.run(
        [sys.executable, "-c", PARENT, INTERRUPTING],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        timeout=60,
        check=False,
    )
    assert "Record(status='interrupted'" in done.stdout, done.stderr
    assert "found={'a': 1}" in done.stdout


def test_a_real_part_runs_in_a_process_of_its_own():
    record = run_part(PARTS[0], 30, command=command_of(PARTS[0], 30))
    assert record.status == "done", record.reason
    assert record.found["backend"] in ("cpu", "metal")
    assert record.found["memory_gb"] > 0.5
    assert str(record.found["python"]) == platform.python_version()


# ---- time --------------------------------------------------------------------------------------


def test_an_allowance_is_shared_evenly_and_what_is_not_used_goes_on():
    clock = Clock()
    whole = Allowance(30, clock)
    first = whole.share(3)
    assert first.seconds_left == 10
    assert whole.first(0.5).seconds_left == 15
    clock.now = 4
    assert whole.share(2).seconds_left == 13
    clock.now = 31
    assert whole.is_over
    assert whole.seconds_left == 0


def test_the_first_item_comes_in_any_case_and_others_while_time_is_left():
    clock = Clock()
    items = Allowance(10, clock).within(["a", "b", "c"])
    assert next(items) == "a"
    clock.now = 9
    assert next(items) == "b"
    clock.now = 10
    assert list(items) == []
    assert list(Allowance(0, clock).within(["a", "b"])) == ["a"]


def test_a_curve_is_by_rows_and_of_one_of_those_that_were_timed_together():
    assert curve_dict(CostCurve({4: 8.0, 1: 2.0}), per=2) == {"rows": [1, 4], "ms": [1.0, 4.0]}


# ---- the file ----------------------------------------------------------------------------------


def test_what_is_written_is_what_is_read(tmp_path):
    path = tmp_path / "report.json"
    path.write_text(to_text(sound_records()))
    assert read_report(path).records == sound_records()


def test_the_head_says_what_it_is_what_was_measured_and_how_that_went():
    records = sound_records() | {"drift": Record("failed", 3.0, "signal 6")}
    head = to_text(records).splitlines()[:12]
    assert json.loads(to_text(records))["version"] == 1
    assert '"mlxspec mac report"' in head[1]
    assert "--read-report" in head[4]
    assert "Apple M4 Pro, metal, Darwin 24.1.0 arm64" in head[6]
    assert any("drift: failed after 3 s" in line for line in to_text(records).splitlines()[:20])


def test_numbers_are_short_stand_in_a_line_and_are_null_where_they_are_none():
    found = {"ms": [1.23456789, 2.0], "worst": float("nan"), "deep": [{"x": float("inf")}]}
    text = to_text({"first": Record("done", 1 / 3, "", found)})
    assert "[ 1.2346, 2.0 ]" in text
    content = json.loads(text)["parts"]["first"]
    assert content["found"]["worst"] is None
    assert content["found"]["deep"] == [{"x": None}]
    assert content["seconds"] == 0.33333


@pytest.fixture
def names(monkeypatch):
    """A machine and a user whose names would be easy to find."""
    monkeypatch.setattr(platform, "node", lambda: "Janes-Mac.local")
    monkeypatch.setattr(getpass, "getuser", lambda: "jdoe")
    monkeypatch.setattr(Path, "home", lambda: Path("/Users/jane doe"))


@pytest.mark.parametrize(
    "text",
    [
        "OSError: cannot open /Users/jane doe/models/secret.gguf",
        "'/Volumes/Jane Disk/secret file' is missing",
        "~/secret/file is missing",
        "../secret is missing",
        "see https://secret.example.org/path?x=1 for that",
        "host Janes-Mac.local (JANES-MAC) has user jdoe",
        "Could not load=/private/secret/lib.dylib, code 1",
        "home of jane doe",
    ],
)
def test_names_paths_and_addresses_are_taken_out(names, text):
    said = json.dumps(scrubbed({"reason": text, "list": [text, (text,)]})).lower()
    for word in ("jane", "doe", "secret", "volumes", "users"):
        assert word not in said


@pytest.mark.parametrize(
    "text",
    [
        "Apple M3 Pro, 12 cores",
        "pool 41.2 tokens/s, T(n)/T(1) of x86-64/aarch64",
        "signal 6: [METAL] Command buffer execution failed: Insufficient Memory",
        "rotating 8 (4 kept)",
    ],
)
def test_other_words_stay(names, text):
    assert scrubbed(text) == text


def test_short_names_stand_in_other_words_and_stay(monkeypatch):
    monkeypatch.setattr(getpass, "getuser", lambda: "m3")
    assert "m3" not in own_names()


def test_a_reason_in_the_file_holds_no_path(names):
    reason = "exit code 1: cannot read /Users/jane doe/x"
    text = to_text({"first": Record("failed", 1.0, reason, {"note": "/Users/jane doe/y"})})
    assert "jane" not in text
    assert "exit code 1: cannot read <path>" in text


# ---- the command -------------------------------------------------------------------------------


@pytest.fixture
def quick(monkeypatch):
    """A plan of one part, and the default model as if it were here."""
    monkeypatch.setattr("mlxspec.report.plan.PARTS", PARTS[:1])
    monkeypatch.setattr("mlxspec.loading.fetch_default_model", lambda: None)


def test_the_command_writes_one_file_and_says_what_it_means(quick, tmp_path, capsys):
    path = tmp_path / "mac.json"
    assert main(["doctor", "--mac-report", str(path)]) == 0
    out, err = capsys.readouterr()
    assert "1 of 1: the machine" in err
    assert f"wrote {path}" in err
    assert "not measured  replies" in out
    assert [file.name for file in tmp_path.iterdir()] == ["mac.json"]
    before = out
    assert main(["doctor", "--read-report", str(path)]) == 0
    assert capsys.readouterr().out == before


def test_the_file_holds_no_name_of_this_machine(quick, tmp_path):
    path = tmp_path / "mac.json"
    main(["doctor", "--mac-report", str(path)])
    text = path.read_text()
    assert str(tmp_path) not in text
    assert [name for name in own_names() if name in text] == []


def test_ctrl_c_is_130_and_the_file_is_there(quick, tmp_path, monkeypatch, capsys):
    interrupted = Record("interrupted", 1.0, "", {"device": "A Chip"})
    monkeypatch.setattr(collecting, "run_part", lambda part, seconds: interrupted)
    path = tmp_path / "mac.json"
    assert main(["doctor", "--mac-report", str(path)]) == 130
    assert read_report(path).records["machine"] == interrupted
    assert "wrote" in capsys.readouterr().err


def test_without_the_default_model_the_rest_is_measured(quick, tmp_path, monkeypatch, capsys):
    def refuse():
        raise ReportError("no network")

    monkeypatch.setattr("mlxspec.loading.fetch_default_model", refuse)
    path = tmp_path / "mac.json"
    assert main(["doctor", "--mac-report", str(path)]) == 0
    assert "what needs a model is not measured: no network" in capsys.readouterr().err
    assert read_report(path).records["machine"].status == "done"


def test_a_file_that_is_there_is_left_alone(tmp_path, capsys):
    path = tmp_path / "mac.json"
    path.write_text("mine")
    assert main(["doctor", "--mac-report", str(path)]) == 2
    assert f"{path} already exists: name another file" in capsys.readouterr().err
    assert path.read_text() == "mine"


def test_a_folder_that_is_not_there_is_named_before_anything_is_measured(tmp_path, capsys):
    assert main(["doctor", "--mac-report", str(tmp_path / "no" / "mac.json")]) == 2
    assert "no is not a folder" in capsys.readouterr().err


def test_one_report_at_a_time(tmp_path, capsys):
    with pytest.raises(SystemExit):
        main(["doctor", "--mac-report", "a", "--read-report", "b"])
    assert "not allowed with" in capsys.readouterr().err
