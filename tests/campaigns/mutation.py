"""Seeds one fault at a time into a copy of the tree and says which test notices: slow, by hand.

    python -m tests.campaigns.mutation                 every fault of `mutation.toml`
    python -m tests.campaigns.mutation --only NAME     some of them; may be given several times
    python -m tests.campaigns.mutation --list          what there is
    python -m tests.campaigns.mutation --out FILE      keep every finished row, go on behind them
    python -m tests.campaigns.mutation --jobs 2        so many faults at a time, 1 unless given

The tree itself is never changed. The tests of all chosen faults are run without any first: a
test that fails anyway notices nothing. Ends with 1 if a fault survives. Every run is a fork of
this process, which has imported the large packages: that takes two seconds a run, and the tests
that notice a fault often take less.
"""

import argparse
import json
import math
import os
import re
import shutil
import signal
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib import import_module
from itertools import count
from multiprocessing import get_context
from pathlib import Path

import pytest

from tests.support.paths import ROOT

COPIED, LINKED = (
    ("mlxspec", "app", "tests", "pyproject.toml"),
    ("assets", "docs", "README.md", "Makefile"),
)
WARM = (
    *("hypothesis", "numpy", "starlette.applications", "textual.app"),
    "transformers.convert_slow_tokenizer",
)
"""Neither MLX, which computes nothing in a fork, nor a module that a fault may be in."""

TIME_LIMIT_S = 300
_WAIT_S = 60  # of one test: many a fault makes a test wait forever
PASSED, FAILED, NO_TESTS = 0, 1, 5  # exit codes of pytest; all others mean that it broke
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


def run_tests(
    folder: Path, tests: list[str], limit_s: float = TIME_LIMIT_S
) -> tuple[int, str, str]:
    """Run tests up to the first failure; return pytest's code, that test, and its last words."""
    said = folder / "said.txt"
    pid = os.fork()
    if pid == 0:
        code = 3
        try:
            code = _tested(folder, tests, said)
        finally:
            os._exit(code)
    end = time.monotonic() + limit_s
    while (status := os.waitpid(pid, os.WNOHANG)) == (0, 0) and time.monotonic() < end:
        time.sleep(0.05)
    with suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)  # also what the tests have started and left
    if status == (0, 0):
        os.waitpid(pid, 0)
        return FAILED, f"none ended within {limit_s} s", ""
    code = os.waitstatus_to_exitcode(status[1])
    if code < 0:
        return FAILED, f"none lived: signal {-code}", ""
    words = said.read_text(encoding="utf-8", errors="replace")
    found = _FAILURE.search(words)
    return code, found[1] if found else "", words[-3000:]


def _tested(folder: Path, tests: list[str], said: Path) -> int:
    """Run tests in this process, a fork, with all that they print in a file."""
    os.setsid()
    with said.open("wb") as file, open(os.devnull, "rb") as nothing:
        for number, opened in enumerate((nothing, file, file)):
            os.dup2(opened.fileno(), number)
    for name in [name for name in sys.modules if name.partition(".")[0] == "tests"]:
        del sys.modules[name]  # those of the tree itself
    os.chdir(folder)
    places = [str(folder), str(folder / "app")]
    sys.path[:0] = places
    os.environ |= {"OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(places)}
    code = int(pytest.main(["-q", "-x", f"--timeout={_WAIT_S}", "-p", "no:cacheprovider", *tests]))
    sys.stdout.flush()
    return code


_seconds = count(1)


def seeded(folder: Path, fault: Fault) -> tuple[int, str, str]:
    """Run a fault's tests with the fault in the copy, the quick ones first; mend the copy."""
    path = folder / fault.path
    sound, facts = path.read_text(encoding="utf-8"), path.stat()
    path.write_text(sound.replace(fault.old, fault.new), encoding="utf-8")
    # Python believes compiled code of the same second and size: every fault has a second of its own
    os.utime(path, (at := next(_seconds), at))
    try:
        code, test, words = run_tests(folder, ["-m", "not slow", *fault.tests])
        if code not in (PASSED, NO_TESTS):
            return code, test, words
        code, test, words = run_tests(folder, ["-m", "slow", *fault.tests])
        return (PASSED if code == NO_TESTS else code), test, words
    finally:
        path.write_text(sound, encoding="utf-8")
        os.utime(path, ns=(facts.st_atime_ns, facts.st_mtime_ns))


def seeded_by_several(
    faults: list[Fault], jobs: int, folder: Path
) -> Iterator[tuple[int, str, str, str]]:
    """Seed faults, some at a time; yield pytest's code, the test, its words and the seconds."""
    with get_context("fork").Pool(jobs, _copy_for_one, (folder,)) as pool:
        yield from pool.imap(_seeded_in_own_copy, faults)


def _copy_for_one(folder: Path) -> None:
    global _own_copy
    _own_copy = folder / str(os.getpid())
    _own_copy.mkdir()
    copy_tree(_own_copy)


def _seeded_in_own_copy(fault: Fault) -> tuple[int, str, str, str]:
    start = time.perf_counter()
    return *seeded(_own_copy, fault), f"{time.perf_counter() - start:.1f}"


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


def check(faults: list[Fault], rows: Rows, jobs: int = 1) -> int:
    """Seed the faults, print a table, return the exit code."""
    left = [fault for fault in faults if fault not in rows]
    for name in WARM:
        import_module(name)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        copy_tree(folder)
        tests = sorted({test for fault in left for test in fault.tests})
        code, test, words = run_tests(folder, tests, math.inf) if tests else (PASSED, "", "")
        if code != PASSED:
            print(f"without any fault, {test or 'pytest'} fails:\n{words}", file=sys.stderr)
            return 2
        print(row("fault", "file", "noticed by", "seconds"), flush=True)
        found = seeded_by_several(left, jobs, folder)
        for fault in faults:
            if fault in left:
                code, test, words, seconds = next(found)
                if code not in (PASSED, FAILED):
                    print(words, file=sys.stderr)
                    return 2
                rows.add(fault, test, seconds)
            test, seconds = rows[fault]
            print(row(fault.name, fault.path, test or "NOTHING", seconds), flush=True)
    noticed = sum(bool(rows[fault][0]) for fault in faults)
    print(f"{noticed} of {len(faults)} faults noticed")
    return 0 if noticed == len(faults) else 1


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.campaigns.mutation", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    names = [fault.name for fault in known_faults()]
    parser.add_argument("--only", action="append", metavar="NAME")
    parser.add_argument("--out", type=Path, metavar="FILE", help="keep finished rows, and go on")
    parser.add_argument("--list", action="store_true", help="name the faults and end")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="faults at a time")
    options = parser.parse_args(arguments)
    if unknown := sorted({*(options.only or ())} - {*names}):
        parser.error(f"there is no fault {unknown[0]!r}: --list names all")
    chosen = [fault for fault in known_faults() if fault.name in (options.only or names)]
    if options.list:
        for fault in chosen:
            print(row(fault.name, fault.path, " ".join(fault.tests), ""))
        return 0
    return check(chosen, Rows(options.out), options.jobs)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
