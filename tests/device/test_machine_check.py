"""What is said of machines and Pythons that have no MLX, before pip says it worse."""

import os
import shutil
import subprocess
import sys
import tomllib

import pytest

from mlxspec.device import backend, machine_check
from mlxspec.device.machine_check import MachineFacts, problem
from mlxspec.errors import MlxspecError
from mlxspec_cli.commands import doctor
from tests.support.paths import ROOT

MAC = MachineFacts("Darwin", "arm64", (3, 12), "15.1", True)
LINUX = MachineFacts("Linux", "x86_64", (3, 11), libc="glibc 2.36")
ROSETTA = MAC._replace(machine="x86_64")

# Plays a Python under Rosetta: what it asks the system is answered as there. It does nothing else.
PYTHON_UNDER_ROSETTA = """\
#!/bin/sh
case "$*" in *machine_check.py) ;; *) echo "asked for $*"; exit 1;; esac
exec {python} -c "
import platform, runpy, subprocess
platform.system, platform.machine = lambda: 'Darwin', lambda: 'x86_64'
subprocess.check_output = lambda command, **more: b'1' if command[0] == 'sysctl' else b'14.5'
runpy.run_path('mlxspec/device/machine_check.py', run_name='__main__')
"
"""


@pytest.mark.parametrize(
    "found",
    [
        MAC,
        MAC._replace(macos="14.0"),
        MAC._replace(macos="26.0"),
        MAC._replace(macos=""),
        MAC._replace(has_apple_chip=False),  # an answer of sysctl that could not be had
        MAC._replace(python=(3, 14)),
        LINUX,
        LINUX._replace(machine="aarch64"),
        LINUX._replace(libc="glibc 2.35"),
        LINUX._replace(libc="glibc 3.0"),
    ],
)
def test_where_there_is_an_mlx_nothing_is_said(found):
    assert problem(found) == ""


@pytest.mark.parametrize(
    ("found", "reason", "remedy"),
    [
        (ROSETTA, "translated by Rosetta", "install Python for Apple Silicon"),
        (ROSETTA._replace(macos="13.0"), "translated by Rosetta", "make PYTHON="),
        (ROSETTA._replace(has_apple_chip=False), "an Intel processor", "with Apple Silicon"),
        (MAC._replace(macos="13.6.1"), "macOS 13.6.1 is too old", "update it to 14 or later"),
        (LINUX._replace(machine="riscv64"), "Linux on riscv64", "use x86-64 or aarch64"),
        (LINUX._replace(machine="i686"), "Linux on i686", "use x86-64 or aarch64"),
        (LINUX._replace(libc=""), "(not glibc)", "glibc 2.35 or later"),
        (LINUX._replace(libc="glibc 2.31"), "(glibc 2.31)", "Debian 12 or Ubuntu 22.04"),
        (LINUX._replace(libc="glibc 2.4"), "(glibc 2.4)", "glibc 2.35 or later"),
        (MachineFacts("Windows", "AMD64", (3, 12)), "Windows has no MLX", "WSL 2"),
        (MAC._replace(python=(3, 9)), "this is 3.9", "Python 3.11 or later is needed"),
        (LINUX._replace(python=(3, 10)), "this is 3.10", "make PYTHON="),
    ],
)
def test_what_has_no_mlx_is_told_why_and_what_to_do(found, reason, remedy):
    said = problem(found)
    assert reason in said
    assert remedy in said


def test_the_oldest_python_is_that_of_the_project():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["requires-python"] == f">={'.'.join(map(str, machine_check.OLDEST_PYTHON))}"


def test_this_machine_passes_without_a_word():
    command = [sys.executable, "-I", "mlxspec/device/machine_check.py"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_it_imports_nothing_that_is_not_there_before_the_installation():
    code = (
        "import runpy, sys; "
        "runpy.run_path('mlxspec/device/machine_check.py', run_name='__main__'); "
        "print(*{name.split('.')[0] for name in sys.modules} - set(sys.stdlib_module_names))"
    )
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code], cwd=ROOT, capture_output=True)
    assert set(done.stdout.decode().split()) <= {"__main__"}, done


# ---- who says it -------------------------------------------------------------------------------


@pytest.fixture
def checkout(tmp_path):
    """What `make` needs to begin, and a Python under Rosetta."""
    for name in ("Makefile", "pyproject.toml", "mlxspec/device/machine_check.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    python = tmp_path / "rosetta"
    python.write_text(PYTHON_UNDER_ROSETTA.format(python=sys.executable))
    python.chmod(0o755)
    return tmp_path


def make(folder, *arguments, **environment):
    return subprocess.run(
        ["make", "-C", str(folder), *arguments, ".venv/installed"],
        capture_output=True,
        text=True,
        env={name: os.environ[name] for name in ("PATH", "HOME")} | environment,
        check=False,
    )


def test_make_says_it_before_pip_runs(checkout):
    done = make(checkout, "PYTHON=./rosetta")
    assert done.returncode == 2
    assert "translated by Rosetta" in done.stdout
    assert "as requested" not in done.stdout
    assert "installing" not in done.stdout
    assert not (checkout / ".venv").exists()


def test_make_says_it_of_the_pythons_that_it_finds(checkout):
    (checkout / "python3.12").symlink_to(checkout / "rosetta")
    (checkout / "python3.13").write_text("#!/bin/sh\nexit 127\n")  # a shim without a Python
    (checkout / "python3.13").chmod(0o755)
    named = "CANDIDATES=python3.13 python3.12"
    done = make(checkout, named, PATH=f"{checkout}:/usr/bin:/bin")
    assert done.returncode == 2
    assert "translated by Rosetta" in done.stdout
    assert not (checkout / ".venv").exists()


def test_make_says_that_there_is_no_python(checkout):
    done = make(checkout, "CANDIDATES=no-such-python")
    assert "Python 3.11 or later is needed, and none was found" in done.stdout
    assert done.returncode == 2


@pytest.fixture
def rosetta(monkeypatch):
    """This process has no MLX and runs under Rosetta."""
    monkeypatch.setattr(machine_check, "machine_facts", lambda: ROSETTA)
    for name in ("mlx", "mlx.core"):
        monkeypatch.setitem(sys.modules, name, None)


@pytest.mark.parametrize("check", [backend.check, backend.check_early])
def test_a_model_that_cannot_run_says_it(rosetta, check):
    with pytest.raises(MlxspecError, match="recorded replies can: this Python is built for Intel"):
        check()


def test_the_doctor_says_it(rosetta):
    findings = doctor.examine().findings
    assert any("translated by Rosetta" in finding for finding in findings)
    assert not any("pip install mlxspec" in finding for finding in findings)
