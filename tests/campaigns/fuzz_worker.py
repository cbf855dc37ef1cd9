"""The process that tries the inputs of `fuzz.py`: bounded in memory, each input in its time.

    python -m tests.campaigns.fuzz_worker JOBS   JSON: [[target, "module:Class", first, count], ...]

On standard output it announces every input before it is tried and tells what became of it, one
JSON object a line, so that the reader knows which one ended the process.
"""

import importlib
import json
import os
import resource
import shutil
import signal
import sys
import tempfile
import traceback
from pathlib import Path
from random import Random

TIME_S = 10  # of processor, for an input of some kilobytes
MEMORY_MB = 1024  # of address space, beyond what the process has before its first input
GROWTH_MB = 256  # of memory in use, at one input


class TooLongError(BaseException):
    """An input took more processor time than any of its size may; not to be caught by readers."""


class Watch:
    """What one input costs."""

    def __enter__(self):
        _forget_peak()
        self._ms, self._kb = _cpu_ms(), _memory_kb("VmRSS")
        # processor time, not time: a process that is stopped for a while hangs by no fault of its
        signal.setitimer(signal.ITIMER_PROF, TIME_S)
        _end_at(self._ms / 1e3 + 3 * TIME_S)  # a loop in a library hears no signal
        return self

    def __exit__(self, *_):
        signal.setitimer(signal.ITIMER_PROF, 0)
        self.ms = _cpu_ms() - self._ms
        self.grown_mb = max(0, _memory_kb("VmHWM") - self._kb) / 1024


def try_input(target, folder: Path, seed: int, index: int) -> dict:
    """Make one input, read it, and return what became of it."""
    place = folder / "input"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    outcome, error = "read", ""
    what = target.make(Random(f"{seed} {index}"), place)
    try:
        with Watch() as watch:
            target.read(place)
    except target.refusals as refusal:
        outcome = "refused" if str(refusal) else "failed"
        error = f"{type(refusal).__name__}: {refusal}"
    except TooLongError:
        outcome, error = "failed", f"more than {TIME_S} s of processor\n{traceback.format_exc()}"
    except BaseException:
        outcome, error = "failed", traceback.format_exc()
    if outcome != "failed" and watch.grown_mb > GROWTH_MB:
        outcome, error = "failed", f"memory grew by {watch.grown_mb:.0f} MB; then {error or 'read'}"
    return {"what": what, "outcome": outcome, "error": error[-4000:], **vars_of(watch)}


def vars_of(watch: Watch) -> dict:
    return {"ms": round(watch.ms, 1), "grown_mb": round(watch.grown_mb, 1)}


def main(jobs: list, seed: int) -> None:
    signal.signal(signal.SIGPROF, _interrupt)
    tell = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a reader prints is not what became of it
    for name, path, first, count in jobs:
        module, _, cls = path.partition(":")
        with tempfile.TemporaryDirectory() as folder:
            target = getattr(importlib.import_module(module), cls)(Path(folder))
            _limit_memory()
            for index in range(first, first + count):
                print(json.dumps({"target": name, "index": index}), file=tell, flush=True)
                result = try_input(target, Path(folder), seed, index)
                print(json.dumps(result), file=tell, flush=True)


def _end_at(seconds: float) -> None:
    """Have the system end the process after so much processor time in all."""
    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
    resource.setrlimit(resource.RLIMIT_CPU, (int(seconds) + 1, hard))


def _interrupt(_signal, _frame):
    raise TooLongError


def _cpu_ms() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return (usage.ru_utime + usage.ru_stime) * 1e3


def _memory_kb(what: str) -> int:
    """Return a figure of this process's memory; Linux alone has them."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return 0
    return next(int(line.split()[1]) for line in lines if line.startswith(what + ":"))


def _forget_peak() -> None:
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return


def _limit_memory() -> None:
    """Bound the address space, so that memory that is asked for and never used counts too."""
    used = _memory_kb("VmSize") * 1024
    if used:
        hard = resource.getrlimit(resource.RLIMIT_AS)[1]
        resource.setrlimit(resource.RLIMIT_AS, (used + (MEMORY_MB << 20), hard))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]), int(sys.argv[2]))
