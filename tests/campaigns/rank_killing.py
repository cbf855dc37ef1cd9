"""Kills ranks in the middle of everything: slow, by hand.

    python -m tests.campaigns.rank_killing --times 20 [--seed S]

A tiny model stands on two processes. Rank 1 is ended by SIGKILL while it loads, reads the prompt,
or at a random token; rank 0 has to raise a clear error within seconds, keep the chat, and end.
Every other time rank 0 is killed, and rank 1 has to be gone. Ends with 1 if anything failed.
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

NOTICED_S = 15
NUM_TOKENS = 120

CHILD = """
import json, sys, time
from mlxspec import api, errors
from mlxspec.distributed import ranks
from mlxspec.params import GenerationParams, Options

def tell(**facts):
    print(json.dumps(facts), flush=True)

class Told(ranks.Processes):
    def __init__(self, hosts):
        super().__init__(hosts)
        tell(followers=[process.pid for process in self._processes])

ranks.Processes = Told
count, last, params = 0, time.monotonic(), GenerationParams(max_tokens=120, ignore_eos=True)
engine = None
try:
    engine = api.load(sys.argv[1], hosts="2", drafter="pool", say=lambda line: None)
    tell(loaded=True)
    for event in engine.generate(list(range(1, 21)), params):
        count += len(getattr(event, "emit", ()))
        last = time.monotonic()
        tell(count=count)
        time.sleep(0.02)
    tell(error="", message="")
except errors.MlxspecError as error:
    facts = {"error": type(error).__name__, "message": str(error), "kept": count}
    facts["seconds"] = time.monotonic() - last
    try:
        if engine is not None:
            list(engine.generate([1, 2], params))
    except errors.MlxspecError as again:
        facts["again"] = type(again).__name__
    tell(**facts)
"""


class Rank0:
    """A process that is rank 0, and what it tells; rank 1 is its child."""

    def __init__(self, folder) -> None:
        self.followers: list[int] = []
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115  # open as long as it runs
        self.process = subprocess.Popen(
            [sys.executable, "-c", CHILD, str(folder)],
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )
        self.followers = self.next()["followers"]

    def next(self) -> dict:
        """Wait for the next line."""
        line = self.process.stdout.readline()
        if not line:
            self._errors.seek(0)
            raise AssertionError(f"rank 0 has ended: {self._errors.read()[-2000:]}")
        return json.loads(line)

    def wait(self, after_tokens, after_s):
        """Wait for so many tokens, or where that is None for seconds from the start."""
        if after_tokens is None:
            time.sleep(after_s)
        else:
            self.wait_for_tokens(after_tokens)

    def wait_for_tokens(self, number) -> None:
        """Wait until so many tokens are written."""
        while self.next().get("count", 0) < number:
            pass

    def end(self) -> dict:
        """Wait for the end; return what is told there."""
        while "error" not in (told := self.next()):
            pass
        return {**told, "code": self.process.wait(timeout=30)}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        for pid in self.followers:
            if not gone_within([pid], 1):
                os.kill(pid, signal.SIGKILL)


def kill_follower(folder, after_tokens=None, after_s=0.0) -> dict:
    """Kill rank 1 after some tokens, or after seconds from its start; return what rank 0 tells."""
    with Rank0(folder) as rank_0:
        rank_0.wait(after_tokens, after_s)
        with suppress(ProcessLookupError):  # all was over before the moment came
            os.kill(rank_0.followers[0], signal.SIGKILL)
        told = rank_0.end()
        told["left"] = not gone_within(rank_0.followers, NOTICED_S)
        return told


def kill_rank_0(folder, after_tokens=None, after_s=0.0) -> dict:
    """Kill rank 0; rank 1 has to be gone."""
    with Rank0(folder) as rank_0:
        rank_0.wait(after_tokens, after_s)
        rank_0.process.kill()
        rank_0.process.wait()
        return {"left": not gone_within(rank_0.followers, NOTICED_S)}


def main() -> int:
    """Run the campaign; return 1 if anything failed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    draw, failed, slowest = random.Random(args.seed), 0, 0.0
    with tempfile.TemporaryDirectory() as home:
        folder = save_shared(Path(home) / "own", "own")
        for number in range(args.times):
            moment = {"after_tokens": draw.randrange(1, NUM_TOKENS - 20)}
            if draw.random() < 0.3:  # while it starts, joins or loads
                moment = {"after_s": draw.uniform(0, 15)}
            kill = kill_rank_0 if number % 2 else kill_follower
            told = kill(folder, **moment)
            is_told = number % 2 or told["error"] in ("RankLostError", "")
            is_soon = told.get("seconds", 0) < NOTICED_S or "kept" not in told
            if "after_tokens" in moment:
                slowest = max(slowest, told.get("seconds", 0.0))
            is_right = is_told and is_soon and not told["left"]
            failed += not is_right
            print(f"{number + 1} {kill.__name__} {moment} {told} {'' if is_right else 'FAILED'}")
            sys.stdout.flush()
    print(f"{args.times} kills, {failed} failed, noticed after {slowest:.1f} s at most")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
