"""Reads hostile files by the thousand: every reader must refuse them or read them. By hand.

    python -m tests.campaigns.fuzz                            every target, 1000 inputs each
    python -m tests.campaigns.fuzz --target gguf --inputs 5000 --seed 7
    python -m tests.campaigns.fuzz --target gguf --first 812 --inputs 1      one input again

An input is made from a sound file, a seed and a number, and is read in a process of its own kind.
It fails where it ends in anything but an error of ours, takes more than ten seconds of processor or
a quarter of a gigabyte, or ends the process. Ends with 1 on failures.
"""

import argparse
import importlib
import multiprocessing
import os
import resource
import shutil
import signal
import sys
import tempfile
import traceback
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

SILENCE_S = 600  # in which a worker says nothing: it hangs without using the processor
TIME_S = 10  # of processor, for an input of some kilobytes
MEMORY_MB = 1024  # of address space, beyond what the process has before its first input
GROWTH_MB = 256  # of memory in use, at one input
TARGETS = {
    "gguf": "tests.campaigns.fuzz_models:GgufTarget",
    "gguf-parts": "tests.campaigns.fuzz_models:GgufPartsTarget",
    "checkpoint": "tests.campaigns.fuzz_models:FolderTarget",
    "tokenizer": "tests.campaigns.fuzz_models:TokenizerTarget",
    "head": "tests.campaigns.fuzz_heads:HeadTarget",
    "own-head": "tests.campaigns.fuzz_heads:OwnHeadTarget",
    "draft-model": "tests.campaigns.fuzz_heads:DraftModelTarget",
    "pickle": "tests.campaigns.fuzz_heads:PickleTarget",
    "table": "tests.campaigns.fuzz_kept:TableTarget",
    "learned": "tests.campaigns.fuzz_kept:LearnedTarget",
    "costs": "tests.campaigns.fuzz_kept:CostsTarget",
    "trace": "tests.campaigns.fuzz_kept:TraceTarget",
    "recording": "tests.campaigns.fuzz_kept:RecordingTarget",
    "settings": "tests.campaigns.fuzz_app:SettingsTarget",
    "store": "tests.campaigns.fuzz_app:StoreTarget",
    "prompts": "tests.campaigns.fuzz_app:PromptsTarget",
}
"""What can be read, and the class that makes inputs for it and reads them."""


@dataclass
class Tally:
    """What became of the inputs of one target."""

    refused: int = 0
    read: int = 0
    failures: list[str] = field(default_factory=list)
    slowest_ms: float = 0.0
    grown_mb: float = 0.0

    @property
    def inputs(self):
        return self.refused + self.read + len(self.failures)

    def add(self, which, what, outcome, error, ms=0.0, grown_mb=0.0):
        self.slowest_ms = max(self.slowest_ms, ms)
        self.grown_mb = max(self.grown_mb, grown_mb)
        self.refused += outcome == "refused"
        self.read += outcome == "read"
        if outcome == "failed":
            self.failures.append(f"{which} ({what}): {error}")


def fuzz(names, inputs, seed, first=0):
    """Try inputs of some targets; an input that ends the process costs itself alone."""
    tallies = {name: Tally() for name in names}
    left = [(name, index) for name in names for index in range(first, first + inputs)]
    while left:
        told, end = _worked(left, seed)
        for (name, index), result in zip(left, told, strict=False):
            tallies[name].add(f"{name} {index}", *(result or ("", "failed", end)))
        left = left[len(told) :]
    return tallies


def _worked(inputs, seed):
    """Return what a process told of the inputs that it tried, and how it ended: "" if well.

    None stands for what became of an input that was the end of it.
    """
    spawn, told = multiprocessing.get_context("spawn"), []
    ours, theirs = spawn.Pipe(duplex=False)
    with tempfile.TemporaryDirectory() as name:
        folder, paths = Path(name), {name: TARGETS[name] for name, _ in inputs}
        process = spawn.Process(target=_work, args=(inputs, paths, seed, theirs, folder))
        process.start()
        theirs.close()
        # counted, not timed: both processes may have been stopped
        while any(ours.poll(1) for _ in range(SILENCE_S)):
            try:
                result = ours.recv()
            except EOFError:
                break
            told[len(told) - (result is not None) :] = [result]
        else:
            process.kill()
        process.join()
        words = (folder / "words").read_text(errors="replace")[-3000:]
    end = f"the process ended with {process.exitcode}\n{words}" if process.exitcode else ""
    if end and (not told or told[-1]):
        raise RuntimeError(f"the worker of {inputs[len(told) :][:1]} cannot begin: {end}")
    return told, end


# ---- the process that tries the inputs: bounded in memory, each input in its time ---------------


class TooLongError(BaseException):
    """An input took more processor time than any of its size may; not to be caught by readers."""


def _work(inputs, paths, seed, tell, folder):
    """Try inputs, each announced by a None; what a reader prints goes into a file."""
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    words = os.open(folder / "words", os.O_WRONLY | os.O_CREAT)
    os.dup2(words, 1)
    os.dup2(words, 2)
    signal.signal(signal.SIGPROF, _interrupt)
    now = None
    for name, index in inputs:
        if name != now:
            now, (module, _, cls) = name, paths[name].partition(":")
            (folder / name).mkdir()
            target = getattr(importlib.import_module(module), cls)(folder / name)
            _limit_memory()
        tell.send(None)
        tell.send(_tried(target, folder / name, Random(f"{seed} {index}")))


def _tried(target, folder, draw):
    """Make one input, read it, and return what became of it."""
    place = folder / "input"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    outcome, error = "read", ""
    what = target.make(draw, place)
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
    return what, outcome, error[-4000:], watch.ms, watch.grown_mb


class Watch:
    """What one input costs."""

    def __enter__(self):
        if (peak := Path("/proc/self/clear_refs")).exists():
            peak.write_text("5")  # forgets it
        self._ms, self._kb = _cpu_ms(), _memory_kb("VmRSS")
        # processor time, not time: a process that is stopped for a while hangs by no fault of its
        signal.setitimer(signal.ITIMER_PROF, TIME_S)
        hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
        end_s = int(self._ms / 1e3 + 3 * TIME_S) + 1  # a loop in a library hears no signal
        resource.setrlimit(resource.RLIMIT_CPU, (end_s, hard))
        return self

    def __exit__(self, *_):
        signal.setitimer(signal.ITIMER_PROF, 0)
        self.ms = _cpu_ms() - self._ms
        self.grown_mb = max(0, _memory_kb("VmHWM") - self._kb) / 1024


def _interrupt(_signal, _frame):
    raise TooLongError


def _cpu_ms():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return (usage.ru_utime + usage.ru_stime) * 1e3


def _memory_kb(what):
    """Return a figure of this process's memory; Linux alone has them."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return 0
    return next(int(line.split()[1]) for line in lines if line.startswith(what + ":"))


def _limit_memory():
    """Bound the address space, so that memory that is asked for and never used counts too."""
    used = _memory_kb("VmSize") * 1024
    if used:
        hard = resource.getrlimit(resource.RLIMIT_AS)[1]
        resource.setrlimit(resource.RLIMIT_AS, (used + (MEMORY_MB << 20), hard))


# ---- the table ----------------------------------------------------------------------------------


def table(tallies):
    head = f"{'target':12} {'inputs':>7} {'refused':>8} {'read':>6} {'failures':>9}"
    lines = [f"{head} {'slowest ms':>11} {'memory MB':>10}"]
    for name, tally in tallies.items():
        lines.append(
            f"{name:12} {tally.inputs:7} {tally.refused:8} {tally.read:6} "
            f"{len(tally.failures):9} {tally.slowest_ms:11.0f} {tally.grown_mb:10.1f}"
        )
    return "\n".join(lines)


def main(arguments):
    parser = argparse.ArgumentParser(prog="python -m tests.campaigns.fuzz", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--target", action="append", choices=list(TARGETS), metavar="NAME")
    parser.add_argument("--inputs", type=int, default=1000, metavar="N", help="per target (1000)")
    parser.add_argument("--seed", type=int, default=0, metavar="S")
    parser.add_argument("--first", type=int, default=0, metavar="I", help="number of the first (0)")
    options = parser.parse_args(arguments)
    tallies = {}
    for name in options.target or list(TARGETS):
        tallies |= fuzz([name], options.inputs, options.seed, options.first)
        print(table({name: tallies[name]}).splitlines()[-1], file=sys.stderr, flush=True)
    failures = [failure for tally in tallies.values() for failure in tally.failures]
    for failure in failures:
        print(f"FAILED {failure}\n")
    print(table(tallies))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
