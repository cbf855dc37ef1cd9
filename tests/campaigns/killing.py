"""Kills a chat in the middle of everything and looks at what is left: slow, by hand.

    python -m tests.campaigns.killing --times 100 [--seed S]

One chat after the other lives in one folder and is ended by SIGKILL: at its start, while a reply
streams in, while it is saved, while chats are switched, renamed, deleted, while settings are
written, while it closes. What was said to be kept has to be there, whole and unchanged; a reply
that was cut off may lack its end, but not claim to be whole; the next start has to work. Prints a
table, and ends with 1 if anything was lost.
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from itertools import cycle, islice
from pathlib import Path

from tests.campaigns.killing_ledger import Ledger
from tests.support.chat_folders import save_chat_folder
from tests.support.paths import ROOT

CHILD = ROOT / "tests/campaigns/killing_child.py"
MOMENTS = {  # what a chat tells right before: how late the kill may come, in seconds
    "start": 3.0,
    "saying": 0.01,
    "shown": 0.01,
    "finished": 0.004,
    "kept": 0.05,  # the costs of forwards are measured and written then
    "switching": 0.01,
    "forking": 0.01,
    "new": 0.005,
    "renaming": 0.004,
    "deleting": 0.004,
    "setting": 0.01,
    "closing": 0.05,
}
_ACTS = {"switching": "switch", "forking": "fork", "renaming": "rename", "deleting": "delete"}
_ACTS |= {"new": "new", "setting": "setting"}  # what makes a moment come; all others: "say"
_TRIES = 20  # chats that may end by themselves before the moment comes


class Killer:
    """Starts chats and kills them."""

    def __init__(self, folder, model, seed):
        self.ledger = Ledger()
        self._folder, self._model, self._draw = folder, model, random.Random(seed)
        self._number = 0

    def kill_at(self, moment):
        """Run chats until one was killed at a moment; check what every one of them left."""
        for _ in range(_TRIES):
            was_killed = self._run(moment)
            self.ledger.check(self._folder)
            if was_killed:
                return
        self.ledger.faults.append(f"no chat came to {moment!r} in {_TRIES} runs")

    def start_once_more(self):
        """Run one chat to its own end."""
        self._run("")
        self.ledger.check(self._folder)

    def _run(self, moment):
        self._number += 1
        late = self._draw.uniform(0, MOMENTS.get(moment, 0.0))
        skipped = self._draw.randrange(4) if moment not in ("start", "closing") else 0
        with tempfile.TemporaryFile() as errors, self._chat(moment, errors) as process:
            try:
                self._read_up_to(process, moment, skipped)
                time.sleep(late)
            finally:
                process.send_signal(signal.SIGKILL)
            for line in process.stdout:
                self._take(line)
            process.wait()
            if process.returncode not in (0, -signal.SIGKILL):
                errors.seek(0)
                trouble = errors.read().decode(errors="replace")[-2000:]
                self.ledger.faults.append(f"a chat ended with {process.returncode}: {trouble}")
        return process.returncode == -signal.SIGKILL

    def _read_up_to(self, process, moment, skipped):
        if moment == "start":
            return
        for line in process.stdout:
            if self._take(line) == moment:
                skipped -= 1
            if skipped < 0:
                return

    def _take(self, line):
        if not line.endswith("\n"):  # the kill came in the middle of it
            return ""
        told = json.loads(line)
        self.ledger.take(told)
        return told["what"]

    def _chat(self, moment, errors):
        path = os.pathsep.join(str(ROOT / folder) for folder in (".", "app", "tests"))
        settings = {"PYTHONPATH": path, "MLXSPEC_HOME": str(self._folder)}
        seed, act = str(self._draw.randrange(1 << 30)), _ACTS.get(moment, "say")
        arguments = [str(self._folder), self._model, seed, act]
        return subprocess.Popen(
            [sys.executable, str(CHILD), *arguments],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            encoding="utf-8",
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1", **settings},
        )


def main(argv=None):
    parser = argparse.ArgumentParser(prog="python -m tests.campaigns.killing", description=__doc__)
    parser.add_argument("--times", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(argv)
    moments = Counter(islice(cycle(MOMENTS), options.times))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "home"
        model = str(save_chat_folder(Path(name) / "tiny"))
        killer = Killer(folder, model, options.seed)
        print(f"{'killed at':12}{'times':>7}{'faults':>8}", flush=True)
        for moment in MOMENTS:
            before = len(killer.ledger.faults)
            for _ in range(moments[moment]):
                killer.kill_at(moment)
            faults = killer.ledger.faults[before:]
            print(
                f"{moment:12}{moments[moment]:>7}{len(faults):>8}", *faults, sep="\n  ", flush=True
            )
        killer.start_once_more()
        # drafts of files that nobody will complete or remove any more
        left = [path.name for path in folder.rglob("*")]
        drafts = sorted(name for name in left if ".part" in name or name[0] == ".")
    ledger = killer.ledger
    print(f"{len(ledger.kept)} messages were told to be kept, {len(ledger.faults)} faults")
    print(f"{len(ledger.lost)} replies were cut off; characters shown and not kept: {ledger.lost}")
    print(f"drafts of files left behind: {', '.join(drafts) or 'none'}")
    return 1 if ledger.faults else 0


if __name__ == "__main__":
    sys.exit(main())
