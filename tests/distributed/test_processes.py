"""The processes of the ranks: whom --hosts names, and ranks that do not start, fit or live."""

import json
import os
import signal
import subprocess
import sys

import pytest

from mlxspec.distributed.processes import read_hosts
from mlxspec.errors import MlxspecError
from tests.campaigns.rank_killing import kill_rank_0
from tests.support.ranks import environment
from tests.support.shared_folders import save_shared

HERE = "127.0.0.1"


@pytest.fixture(autouse=True)
def hostfiles(tmp_path, monkeypatch):
    """Stand in a folder with a hostfile of each of two back ends."""
    hosts = [
        {"ssh": "here", "ips": ["192.0.2.1"], "rdma": [None, "rdma_en2"]},
        {"ssh": "there", "ips": ["192.0.2.2"], "rdma": ["rdma_en2", None]},
    ]
    for name in ("jaccl", "mpi"):
        file = {"backend": name, "envs": ["A=1"], "hosts": hosts}
        (tmp_path / f"{name}.json").write_text(json.dumps(file))
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("text", "names", "backend", "envs"),
    [
        ("3", [HERE] * 3, "ring", []),
        (f"{HERE},192.0.2.7", [HERE, "192.0.2.7"], "ring", []),
        ("jaccl.json", ["here", "there"], "jaccl", ["A=1"]),
    ],
)
def test_hosts_are_a_number_or_addresses_or_a_file_of_mlx_launch(text, names, backend, envs):
    found = read_hosts(text)
    assert [host.ssh_hostname for host in found.hosts] == names
    assert [host.rank for host in found.hosts] == [*range(len(names))]
    assert (found.backend, found.envs) == (backend, envs)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("1", "names 1 of the two ranks"),
        ("0", "names 0 of the two ranks"),
        ("one-host,other-host", "no address of one-host, other-host"),
        (f"{HERE},,192.0.2.7", "empty"),
        ("missing.json", "exist"),
        ("mpi.json", r"'mpi'.*mlx\.launch"),
    ],
)
def test_hosts_that_cannot_be_started_are_refused_in_words(text, said):
    with pytest.raises(MlxspecError, match=said):
        read_hosts(text)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save_shared(tmp_path_factory.mktemp("shared") / "own", "own")


def test_the_other_ranks_end_with_rank_0(folder):
    assert kill_rank_0(folder, after_tokens=5) == ""


STARTS = """
from mlxspec.distributed import processes, ranks
processes._JOIN_S = "1"
ranks.start("2")
"""
ENDS = "import os, sys\nif os.environ.get('MLX_RANK') == '1': sys.exit('no room here')\n"
# MLX waits for this rank forever: what it says right before it joins is its last word.
JOINS_NOT = """
import builtins, os, sys
say = builtins.print
def last(*words, **how):
    say(*words, **how)
    if "ready to join" in str(words): sys.exit("no room here")
if os.environ.get("MLX_RANK") == "1": builtins.print = last
"""


@pytest.mark.parametrize(
    ("rank_1", "code", "said"),
    [
        (ENDS, 1, f"RankLostError: the ranks cannot start: rank 1 on {HERE} has ended"),
        (JOINS_NOT, -signal.SIGKILL, "not all join within 1 s"),
    ],
    ids=["ends", "does not join"],
)
def test_a_rank_that_does_not_start_ends_the_run_with_its_last_words(rank_1, code, said, tmp_path):
    (tmp_path / "sitecustomize.py").write_text(rank_1)
    done = run(STARTS, PYTHONPATH=f"{tmp_path}{os.pathsep}{environment()['PYTHONPATH']}")
    assert done.returncode == code
    assert said in done.stderr
    assert "no room here" in done.stderr


def run(script, *arguments, **more):
    return subprocess.run(
        [sys.executable, "-c", script, *arguments],
        env=environment(**more),
        capture_output=True,
        text=True,
        timeout=120,
        stdin=subprocess.DEVNULL,
    )


# What mlx.launch runs on both ranks: rank 1 has one folder, and rank 0 loads one after the other.
LAUNCHED = """
import json, sys
import mlx.core as mx
import mlxspec
from mlxspec.errors import MlxspecError
from mlxspec.params import GenerationParams

group = mx.distributed.init(strict=True, backend="ring")
other, folder = sys.argv[1:]
try:
    mlxspec.load(other if group.rank() == 0 else folder, drafter="suffix", group=group)
except MlxspecError as error:
    print(error)
engine = mlxspec.load(folder, drafter="suffix", group=group)
params = GenerationParams(max_tokens=9, ignore_eos=True)
tokens = [t for e in engine.generate([1, 2, 3], params) for t in getattr(e, "emit", ())]
print(json.dumps({"rank": group.rank(), "tokens": len(tokens)}))
"""


def test_a_script_of_mlx_launch_gets_an_engine_on_rank_0_where_the_weights_are_the_same(
    folder, tmp_path
):
    other = save_shared(tmp_path / "other", "own", seed=6)
    (tmp_path / "script.py").write_text(LAUNCHED)
    ports = ["--starting-port", str(20000 + os.getpid() % 20000)]
    arguments = ["-n", "2", "--backend", "ring", *ports, "--", sys.executable, "script.py"]
    launcher = "from mlx._distributed_utils.launch import main; main()"
    said = run(launcher, *arguments, str(other), str(folder)).stdout
    assert "the ranks do not fit together: weights is" in said
    assert "give all machines the same files" in said
    assert json.loads(said.strip().splitlines()[-1]) == {"rank": 0, "tokens": 9}
