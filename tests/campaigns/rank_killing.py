"""Kills ranks in the middle of everything: slow, by hand.

    python -m tests.campaigns.rank_killing --times 20 [--seed S]

A tiny model stands on two processes. Rank 1 is ended by SIGKILL while it loads, reads the prompt,
or at a random token; rank 0 has to end within seconds, and say why. Every other time rank 0 is
killed, and rank 1 has to be gone. Ends with 1 if anything failed.
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
from contextlib import suppress
from pathlib import Path

from tests.support.ranks import environment, gone_within
from tests.support.shared_folders import save_shared

NOTICED_S = 25
NUM_TOKENS = 120

CHILD = """
import json, sys, time
from mlxspec import api
from mlxspec.distributed import ranks
from mlxspec.params import GenerationParams

def tell(fact):
    print(json.dumps(fact), flush=True)

class Told(ranks.Processes):
    def __init__(self, hosts):
        super().__init__(hosts)
        tell([process.pid for process in self._processes])

ranks.Processes = Told
count, params = 0, GenerationParams(max_tokens=120, ignore_eos=True)
engine = api.load(sys.argv[1], hosts="2", drafter="pool", say=lambda line: None)
for event in engine.generate(list(range(1, 21)), params):
    count += len(getattr(event, "emit", ()))
    tell(count)
    time.sleep(0.02)
"""


class Rank0:
    """A process that is rank 0, and what it tells; rank 1 is its child.

    Attributes:
        followers: The processes of the other ranks.
        count: The tokens that it has told so far.
    """

    def __init__(self, folder) -> None:
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115  # open as long as it runs
        self.process = subprocess.Popen(
            [sys.executable, "-c", CHILD, str(folder)],
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )
        self.followers = json.loads(self.process.stdout.readline())
        self.count = 0

    def wait(self, after_tokens=None, after_s=0.0) -> None:
        """Wait for so many tokens, or where that is None for seconds from the start."""
        if after_tokens is None:
            time.sleep(after_s)
        while after_tokens is not None and self.count < after_tokens:
            self.count = json.loads(self.process.stdout.readline())

    def end(self) -> str:
        """Wait for the end; return what is said of it."""
        self.process.wait(timeout=NOTICED_S)
        self._errors.seek(0)
        return self._errors.read()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        for pid in self.followers:
            if not gone_within([pid], 1):
                os.kill(pid, signal.SIGKILL)


def kill_follower(folder, **moment) -> str:
    """Kill rank 1 after some tokens, or after seconds from its start; return what was wrong."""
    with Rank0(folder) as rank_0:
        rank_0.wait(**moment)
        with suppress(ProcessLookupError):  # all was over before the moment came
            os.kill(rank_0.followers[0], signal.SIGKILL)
        said = rank_0.end()
        if rank_0.process.returncode == 0:
            return ""
        is_told = "the target is lost" in said and "rank 1" in said
        return "" if is_told and gone_within(rank_0.followers, NOTICED_S) else said


def kill_rank_0(folder, **moment) -> str:
    """Kill rank 0; rank 1 has to be gone. Return what was wrong."""
    with Rank0(folder) as rank_0:
        rank_0.wait(**moment)
        rank_0.process.kill()
        rank_0.process.wait()
        return "" if gone_within(rank_0.followers, NOTICED_S) else "rank 1 is left"


def main() -> int:
    """Run the campaign; return 1 if anything failed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    draw, failed = random.Random(args.seed), 0
    with tempfile.TemporaryDirectory() as home:
        folder = save_shared(Path(home) / "own", "own")
        for number in range(args.times):
            moment = {"after_tokens": draw.randrange(1, NUM_TOKENS - 20)}
            if draw.random() < 0.3:  # while it joins or loads
                moment = {"after_s": draw.uniform(0, 5)}
            kill = kill_rank_0 if number % 2 else kill_follower
            wrong = kill(folder, **moment)
            failed += bool(wrong)
            print(f"{number + 1} {kill.__name__} {moment} {wrong or 'ok'}", flush=True)
    print(f"{args.times} kills, {failed} failed")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
