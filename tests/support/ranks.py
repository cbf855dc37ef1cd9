"""Runs Python in a process of its own that is rank 0, and answers with what it prints as JSON."""

import json
import os
import subprocess
import sys
import time

from tests.support.paths import ROOT

LIMIT_S = 280
PROMPT = [1, 5, 9, 3, 4, 5, 9, 3, 7, 2]


def environment(**more):
    """The environment of such a process; `more` replaces some of it."""
    paths = [str(ROOT), str(ROOT / "app"), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths)), **more}


def run_script(script, *arguments, limit_s=LIMIT_S, **more):
    """Run a script to its end; the last line of its output is JSON."""
    done = subprocess.run(
        [sys.executable, "-c", script, *map(str, arguments)],
        env=environment(**more),
        capture_output=True,
        text=True,
        timeout=limit_s,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.strip().splitlines()[-1])


def is_alive(pid):
    """Whether a process runs; one that has ended and was not waited for does not."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as state:
            return state.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
    except OSError:
        os.kill(pid, 0)
        return True


def gone_within(pids, seconds):
    """Whether all of some processes have ended after so many seconds at most."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if not any(map(is_alive, pids)):
            return True
        time.sleep(0.1)
    return not any(map(is_alive, pids))
