"""A rank that dies or does not start ends the run: a clear error, and no process left."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from tests.campaigns.rank_killing import Rank0, kill_rank_0
from tests.support.ranks import environment
from tests.support.shared_folders import save_shared


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save_shared(tmp_path_factory.mktemp("shared") / "own", "own")


def test_a_killed_rank_ends_the_run_and_says_so(folder):
    with Rank0(folder) as rank_0:
        rank_0.wait(after_tokens=7)
        os.kill(rank_0.followers[0], signal.SIGKILL)
        said = rank_0.end()

    assert rank_0.process.returncode == 1
    assert "rank 1 on 127.0.0.1 has ended with the code -9" in said
    assert "the chat is kept" in said


def test_the_other_ranks_end_with_rank_0(folder):
    assert kill_rank_0(folder, after_tokens=5) == ""


def test_a_rank_that_cannot_start_is_named(folder, tmp_path):
    (tmp_path / "sitecustomize.py").write_text(
        "import os, sys\nif os.environ.get('MLX_RANK') == '1': sys.exit('no room here')\n"
    )
    path = f"{tmp_path}{os.pathsep}{environment()['PYTHONPATH']}"
    script = f"import mlxspec; mlxspec.load({str(folder)!r}, hosts='2')"
    start = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=environment(PYTHONPATH=path),
        capture_output=True,
        text=True,
        timeout=120,
    )

    assert done.returncode == 1
    assert "RankLostError: the ranks cannot start: rank 1 on 127.0.0.1 has ended" in done.stderr
    assert "no room here" in done.stderr
    assert time.monotonic() - start < 60


def test_a_rank_that_does_not_join_is_noticed(tmp_path):
    """MLX waits for it forever; what it says right before it joins is its last word here."""
    (tmp_path / "sitecustomize.py").write_text(
        "import builtins, os, sys\n"
        "say = builtins.print\n"
        "def last(*words, **how):\n"
        "    say(*words, **how)\n"
        "    if 'ready to join' in str(words): sys.exit('no way to the others')\n"
        "if os.environ.get('MLX_RANK') == '1': builtins.print = last\n"
    )
    path = f"{tmp_path}{os.pathsep}{environment()['PYTHONPATH']}"
    script = (
        "from mlxspec.distributed import processes, ranks\n"
        "processes._JOIN_S = '3'\n"
        "ranks.start('2')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=environment(PYTHONPATH=path),
        capture_output=True,
        text=True,
        timeout=120,
    )

    assert done.returncode == -signal.SIGKILL
    assert "not all join within 3 s" in done.stderr
    assert "no way to the others" in done.stderr


def test_other_weights_on_a_rank_are_refused(folder, tmp_path):
    """As a script that mlx.launch has started on both ranks, each with its own folder."""
    other = save_shared(tmp_path / "other", "own", seed=6)
    done = launched(tmp_path, [folder, other])

    assert "the ranks do not fit together: weights is" in done.stdout
    assert "give all machines the same files" in done.stdout


def test_a_script_of_mlx_launch_gets_an_engine_on_rank_0(folder, tmp_path):
    done = launched(tmp_path, [folder, folder])

    assert json.loads(done.stdout.strip().splitlines()[-1]) == {"rank": 0, "tokens": 9}


SCRIPT = """
import json, sys
import mlx.core as mx
import mlxspec
from mlxspec.errors import MlxspecError
from mlxspec.params import GenerationParams

group = mx.distributed.init(strict=True, backend="ring")
try:
    engine = mlxspec.load(sys.argv[1 + group.rank()], drafter="suffix", group=group)
except MlxspecError as error:
    print(error)
    sys.exit(0)
params = GenerationParams(max_tokens=9, ignore_eos=True)
tokens = [t for e in engine.generate([1, 2, 3], params) for t in getattr(e, "emit", ())]
print(json.dumps({"rank": group.rank(), "tokens": len(tokens)}))
"""


def launched(tmp_path, folders):
    """Run the script with the launcher of MLX, on two local ranks."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    code = "import sys; from mlx._distributed_utils.launch import main; main()"
    launcher = [sys.executable, "-c", code, "-n", "2", "--backend", "ring"]
    ports = ["--starting-port", str(20000 + os.getpid() % 20000)]
    return subprocess.run(
        [*launcher, *ports, "--", sys.executable, str(script), *map(str, folders)],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=200,
        stdin=subprocess.DEVNULL,
    )
