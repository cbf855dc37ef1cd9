"""`mlxspec export`: what it writes, where, and how it says no."""

import pytest

from mlxspec_app.export.filing import FORMATS
from mlxspec_cli import main
from tests.support.paths import TRACES

TRACE = str(TRACES / "chat.jsonl")


def test_writes_every_format_at_once(tmp_path):
    outs = {name: tmp_path / f"{name}{made.suffix}" for name, made in FORMATS.items()}
    options = [word for name, out in outs.items() for word in (f"--{name}", str(out))]
    assert main.main(["export", TRACE, *options]) == 0
    for name, out in outs.items():
        assert out.stat().st_size > 500, name


def test_a_dash_is_standard_output(capfdbinary):
    assert main.main(["export", TRACE, "--md", "-"]) == 0
    out, err = capfdbinary.readouterr()
    assert out.startswith(b"## You\n")
    assert err == b""


def test_a_file_that_is_there_stays_unless_forced(tmp_path, capsys):
    out = tmp_path / "chat.md"
    out.write_text("mine")
    assert main.main(["export", TRACE, "--md", str(out)]) == 2
    assert "already exists: name another file, or add --force" in capsys.readouterr().err
    assert out.read_text() == "mine"
    assert main.main(["export", TRACE, "--md", str(out), "--force"]) == 0
    assert out.read_text().startswith("## You")


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        ([], 2, "nothing to export: give at least one of --html, --svg"),
        (["--md", "same", "--csv", "same"], 2, "cannot go to the same file"),
        (["--csv", "new", "--md", "there"], 2, "there already exists"),
        (["--csv", "none/new"], 1, "No such file or directory"),
    ],
)
def test_what_cannot_be_written_is_one_line_and_writes_nothing(
    tmp_path, monkeypatch, capsys, options, code, said
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there").touch()
    assert main.main(["export", TRACE, *options]) == code
    assert said in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["there"]


@pytest.mark.parametrize(
    ("content", "said"),
    [(None, "cannot read the trace"), ("{broken\n", "not JSON"), ("", "has no reply")],
)
def test_a_bad_trace_is_one_line_and_writes_nothing(tmp_path, capsys, content, said):
    trace, out = tmp_path / "trace.jsonl", tmp_path / "out.html"
    if content is not None:
        trace.write_text(content)
    assert main.main(["export", str(trace), "--html", str(out)]) == 1
    err = capsys.readouterr().err
    assert said in err
    assert err.count("\n") == 1
    assert not out.exists()
