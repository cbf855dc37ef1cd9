"""Reads hostile files by the thousand: every reader must refuse them or read them. By hand.

    python -m tests.campaigns.fuzz                            every target, 1000 inputs each
    python -m tests.campaigns.fuzz --target gguf --inputs 5000 --seed 7
    python -m tests.campaigns.fuzz --target gguf --first 812 --inputs 1      one input again

An input is made from a sound file, a seed and a number, and is read in a process of its own kind
(`fuzz_worker.py`). It fails where it ends in anything but an error of ours, takes more than ten
seconds of processor or a quarter of a gigabyte, or ends the process. Ends with 1 on failures.
"""

import argparse
import json
import os
import queue
import subprocess
import sys
import threading
from dataclasses import dataclass, field

from tests.support.paths import ROOT

SILENCE_S = 600  # in which a worker says nothing: it hangs without using the processor
TARGETS = {
    "gguf": "tests.campaigns.fuzz_models:GgufTarget",
    "gguf-parts": "tests.campaigns.fuzz_models:GgufPartsTarget",
    "checkpoint": "tests.campaigns.fuzz_models:FolderTarget",
    "tokenizer": "tests.campaigns.fuzz_tokenizers:TokenizerTarget",
    "head": "tests.campaigns.fuzz_heads:HeadTarget",
    "own-head": "tests.campaigns.fuzz_heads:OwnHeadTarget",
    "draft-model": "tests.campaigns.fuzz_heads:DraftModelTarget",
    "pickle": "tests.campaigns.fuzz_pickles:PickleTarget",
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

    inputs: int = 0
    refused: int = 0
    read: int = 0
    failures: list[str] = field(default_factory=list)
    slowest_ms: float = 0.0
    grown_mb: float = 0.0

    def add(self, name: str, index: int, result: dict) -> None:
        self.inputs += 1
        self.slowest_ms = max(self.slowest_ms, result["ms"])
        self.grown_mb = max(self.grown_mb, result["grown_mb"])
        if result["outcome"] == "failed":
            self.failures.append(f"{name} {index} ({result['what']}): {result['error']}")
        elif result["outcome"] == "refused":
            self.refused += 1
        else:
            self.read += 1


class Worker:
    """A process that tries inputs, and the lines that it says."""

    def __init__(self, jobs: list, seed: int) -> None:
        paths = os.pathsep.join(map(str, (ROOT, ROOT / "app", ROOT / "tests")))
        command = [sys.executable, "-m", "tests.campaigns.fuzz_worker", json.dumps(jobs), str(seed)]
        self.process = subprocess.Popen(
            command,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": paths, "OPENBLAS_NUM_THREADS": "1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.last_words: list[str] = []
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._threads = [
            threading.Thread(target=read, daemon=True) for read in (self._listen, self._overhear)
        ]
        for thread in self._threads:
            thread.start()

    def line(self) -> dict | None:
        """Return what it says next; None once it has ended, or is ended for its silence."""
        for _ in range(SILENCE_S):  # counted, not timed: both processes may have been stopped
            try:
                line = self._lines.get(timeout=1)
            except queue.Empty:
                continue
            return None if line is None else json.loads(line)
        self.process.kill()
        return None

    def end(self) -> str:
        """Return how it ended, "" if well."""
        code = self.process.wait()
        for thread in self._threads:
            thread.join(timeout=5)
        return f"the process ended with {code}\n{''.join(self.last_words)[-3000:]}" if code else ""

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line)
        self._lines.put(None)

    def _overhear(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.last_words = [*self.last_words[-40:], line]


def fuzz(names: list[str], inputs: int, seed: int, first: int = 0) -> dict[str, Tally]:
    """Try inputs of some targets; an input that ends the process costs itself alone."""
    tallies = {name: Tally() for name in names}
    jobs = [[name, TARGETS[name], first, inputs] for name in names]
    while jobs:
        worker = Worker(jobs, seed)
        now: dict | None = None
        while (line := worker.line()) is not None:
            if "target" in line:
                now = line
            else:
                assert now is not None
                tallies[now["target"]].add(now["target"], now["index"], line)
                jobs = _rest(jobs, now)
                now = None
        end = worker.end()
        if not end:
            return tallies
        if now is None:
            raise RuntimeError(f"the worker of {jobs[0][0]} cannot begin: {end}")
        failed = {"what": "", "outcome": "failed", "error": end, "ms": 0.0, "grown_mb": 0.0}
        tallies[now["target"]].add(now["target"], now["index"], failed)
        jobs = _rest(jobs, now)
    return tallies


def _rest(jobs: list, done: dict) -> list:
    """Return the jobs without what was done."""
    (name, path, first, count), *others = jobs
    while name != done["target"]:
        (name, path, first, count), *others = others
    left = first + count - done["index"] - 1
    return ([[name, path, done["index"] + 1, left]] if left else []) + others


def table(tallies: dict[str, Tally]) -> str:
    head = f"{'target':12} {'inputs':>7} {'refused':>8} {'read':>6} {'failures':>9}"
    lines = [f"{head} {'slowest ms':>11} {'memory MB':>10}"]
    for name, tally in tallies.items():
        lines.append(
            f"{name:12} {tally.inputs:7} {tally.refused:8} {tally.read:6} "
            f"{len(tally.failures):9} {tally.slowest_ms:11.0f} {tally.grown_mb:10.1f}"
        )
    return "\n".join(lines)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.campaigns.fuzz", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--target", action="append", choices=list(TARGETS), metavar="NAME")
    parser.add_argument("--inputs", type=int, default=1000, metavar="N", help="per target (1000)")
    parser.add_argument("--seed", type=int, default=0, metavar="S")
    parser.add_argument("--first", type=int, default=0, metavar="I", help="number of the first (0)")
    options = parser.parse_args(arguments)
    tallies: dict[str, Tally] = {}
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
