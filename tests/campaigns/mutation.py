"""Seeds one fault at a time into a copy of the tree and says which test notices: slow, by hand.

    python -m tests.campaigns.mutation                 every fault of `mutation.toml`
    python -m tests.campaigns.mutation --only NAME     some of them; may be given several times
    python -m tests.campaigns.mutation --list          what there is
    python -m tests.campaigns.mutation --out FILE      keep every finished row, go on behind them

The tree itself is never changed. The tests of all chosen faults are run without any first: a
test that fails anyway notices nothing. Ends with 1 if a fault survives.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.support.paths import ROOT

COPIED, LINKED = (
    ("mlxspec", "app", "tests", "pyproject.toml"),
    ("assets", "docs", "README.md", "Makefile"),
)
TIME_LIMIT_S = 900
PASSED, FAILED = 0, 1  # exit codes of pytest; all others mean that it did not get so far
_FAILURE = re.compile(r"^(?:FAILED|ERROR) tests/(.+?)(?: - .*)?$", re.MULTILINE)


@dataclass(frozen=True)
class Fault:
    """A textual replacement in one file.

    Attributes:
        name: What is wrong then.
        path: The file, below the root of the tree.
        old: Text that stands there exactly once.
        new: What to write instead.
        tests: Test files, or single tests, of which one has to fail.
    """

    name: str
    path: str
    old: str
    new: str
    tests: tuple[str, ...]


def known_faults() -> list[Fault]:
    """Return the faults of `mutation.toml`."""
    groups = tomllib.loads((ROOT / "tests/campaigns/mutation.toml").read_text(encoding="utf-8"))[
        "group"
    ]
    return [
        Fault(name, group["path"], old, new, tuple(group["tests"]))
        for group in groups
        for name, old, new in group["faults"]
    ]


def copy_tree(folder: Path) -> None:
    """Fill a folder with what the tests need of the working tree."""
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, folder / name)
    for name in LINKED:
        (folder / name).symlink_to(ROOT / name)


def run_tests(folder: Path, tests: list[str]) -> tuple[int, str, str]:
    """Run tests up to the first failure; return pytest's code, that test, and its last words."""
    settings = {"PYTHONPATH": f"{folder}:{folder / 'app'}", "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests]
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1", **settings},
            capture_output=True,
            text=True,
            timeout=TIME_LIMIT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return FAILED, f"none ended within {TIME_LIMIT_S} s", ""
    found = _FAILURE.search(done.stdout)
    if done.returncode < 0:
        return FAILED, f"none lived: signal {-done.returncode}", ""
    return done.returncode, found[1] if found else "", (done.stdout + done.stderr)[-3000:]


def seeded(folder: Path, fault: Fault) -> tuple[int, str, str]:
    """Run a fault's tests with the fault in the copy; the copy is sound again afterwards."""
    path = folder / fault.path
    sound = path.read_text(encoding="utf-8")
    path.write_text(sound.replace(fault.old, fault.new), encoding="utf-8")
    try:
        return run_tests(folder, list(fault.tests))
    finally:
        path.write_text(sound, encoding="utf-8")


class Rows:
    """What noticed each fault so far, kept in a file of JSON lines if there is one."""

    def __init__(self, path: Path | None):
        self._path = path
        lines = path.read_text(encoding="utf-8").splitlines() if path and path.exists() else []
        self._found = {fault: noticed for fault, *noticed in map(json.loads, lines)}

    def __getitem__(self, fault: Fault) -> tuple[str, str]:
        """Return the test that noticed a fault, empty for none, and the seconds it took."""
        test, seconds = self._found[self._key(fault)]
        return test, seconds

    def __contains__(self, fault: Fault) -> bool:
        return self._key(fault) in self._found

    def add(self, fault: Fault, test: str, seconds: str) -> None:
        self._found[self._key(fault)] = [test, seconds]
        if self._path:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps([self._key(fault), test, seconds]) + "\n")

    @staticmethod
    def _key(fault: Fault) -> str:
        """All of a fault, or a row would be believed of another text or of other tests."""
        return json.dumps(asdict(fault))


def row(name: str, path: str, noticed_by: str, seconds: str) -> str:
    return f"{name:44} {path:24} {seconds:>7}  {noticed_by}"


def check(faults: list[Fault], rows: Rows) -> int:
    """Seed the faults one after the other, print a table, return the exit code."""
    left = [fault for fault in faults if fault not in rows]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        copy_tree(folder)
        tests = sorted({test for fault in left for test in fault.tests})
        code, test, words = run_tests(folder, tests) if tests else (PASSED, "", "")
        if code != PASSED:
            print(f"without any fault, {test or 'pytest'} fails:\n{words}", file=sys.stderr)
            return 2
        print(row("fault", "file", "noticed by", "seconds"), flush=True)
        for fault in faults:
            if fault in left:
                start = time.perf_counter()
                code, test, words = seeded(folder, fault)
                if code not in (PASSED, FAILED):
                    print(words, file=sys.stderr)
                    return 2
                rows.add(fault, test, f"{time.perf_counter() - start:.1f}")
            test, seconds = rows[fault]
            print(row(fault.name, fault.path, test or "NOTHING", seconds), flush=True)
    noticed = sum(bool(rows[fault][0]) for fault in faults)
    print(f"{noticed} of {len(faults)} faults noticed")
    return 0 if noticed == len(faults) else 1


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.campaigns.mutation", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    names = [fault.name for fault in known_faults()]
    parser.add_argument("--only", action="append", choices=names, metavar="NAME")
    parser.add_argument("--out", type=Path, metavar="FILE", help="keep finished rows, and go on")
    parser.add_argument("--list", action="store_true", help="name the faults and end")
    options = parser.parse_args(arguments)
    chosen = [fault for fault in known_faults() if fault.name in (options.only or names)]
    if options.list:
        for fault in chosen:
            print(row(fault.name, fault.path, " ".join(fault.tests), ""))
        return 0
    return check(chosen, Rows(options.out))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
