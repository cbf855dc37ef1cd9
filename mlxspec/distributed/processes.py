"""Reads `--hosts`, and starts the other ranks with the environment that `mlx.launch` would give.

`mlx.launch` itself gives every rank pipes in place of the terminal, so no chat could run under it,
and it keeps a processor busy while it watches. A rank ends with its standard input, so with this
process, even if that is killed.
"""

import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
from contextlib import ExitStack, suppress
from os.path import expanduser
from pathlib import Path

import mlx.core as mx
from mlx._distributed_utils.common import Hostfile
from mlx._distributed_utils.launch import RemoteProcess

from mlxspec.errors import MlxspecError, RankLostError

LOCAL = ("127.0.0.1", "localhost", "::1")
_BACKENDS = ("ring", "jaccl", "jaccl-ring")
_ALLOWED = "a number of local processes, addresses separated by commas, or a hostfile of mlx.launch"
_FIRST_PORT = 32323  # of ranks on other machines, as in mlx.launch
_JOIN_S = "20"  # seconds that ranks which have started may take to join
_SAID = 300  # last characters of a rank's output, shown if it ends
_MODULE = "mlxspec.distributed"
# Not -tt as in mlx.launch: a rank that loses its connection sees the end of its input.
_SSH = ["ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=20", "-o", "ServerAliveInterval=5"]
READY = "mlxspec: ready to join"
"""The line that a rank prints right before it joins."""


def read_hosts(text: str) -> Hostfile:
    """Return the hosts that a user named, this machine first, with one of our back ends.

    `text` is a number of processes on this machine, addresses separated by commas, or the path of a
    hostfile in the format of `mlx.launch` and `mlx.distributed_config`.
    """
    path = Path(expanduser(text))
    try:
        if text.isdigit():
            found: Hostfile = Hostfile.from_list(LOCAL[0], int(text))
        elif path.suffix == ".json" or path.is_file():
            found = Hostfile.from_file(str(path))
        else:
            found = Hostfile.from_list(text)
    except ValueError as error:
        raise MlxspecError(f"--hosts {text}: {error}; give {_ALLOWED}") from error
    if len(found.hosts) < 2:
        raise MlxspecError(
            f"--hosts {text} names {len(found.hosts)} of the two ranks that are the fewest: leave "
            f"it out, or give {_ALLOWED}"
        )
    found.backend = found.backend or "ring"
    if found.backend not in _BACKENDS:
        raise MlxspecError(
            f"--hosts {text} asks for the back end {found.backend!r}; mlxspec starts "
            f"{', '.join(_BACKENDS)}: for another one, start a script with mlx.launch and load "
            "with group="
        )
    if nameless := [host.ssh_hostname for host in found.hosts if not host.ips]:
        raise MlxspecError(
            f"--hosts {text} gives no address of {', '.join(nameless)}: name hosts by their "
            "addresses, or give a hostfile with `ips`, as mlx.distributed_config writes it"
        )
    return found


class Processes:
    """The processes of ranks 1, 2, ..., and the environment with which this one joins as rank 0."""

    def __init__(self, hosts: Hostfile) -> None:
        """Start them, and wait until all are about to join; `log` is the file of what they say."""
        self._hosts = hosts
        self._folder = tempfile.TemporaryDirectory(prefix="mlxspec-ranks-")
        self.log = Path(self._folder.name) / "said.txt"
        self._names, self._files = _launch_environment(hosts)
        self.environment = {**self._names, "MLX_RANK": "0"}
        for name, content in self._files.items():
            path = Path(self._folder.name) / f"{name}.json"
            path.write_text(content, encoding="utf-8")
            self.environment[name] = str(path)
        self._processes: list[subprocess.Popen[bytes]] = []
        try:
            for rank in range(1, len(hosts.hosts)):
                self._processes.append(self._start(rank))
            for process in self._processes:
                if not any(line.strip() == READY.encode() for line in process.stdout or ()):
                    process.wait()
                    raise RankLostError(f"the ranks cannot start: {self.ended()}")
        except BaseException:
            self.end()
            raise

    def announce(self) -> None:
        """Wake every rank for a message."""
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.write(b"\n")

    def ended(self) -> str:
        """Return which rank has ended and its last words; "" while all of them run."""
        for rank, process in enumerate(self._processes, 1):
            if process.poll() is not None:
                said = self.log.read_text(encoding="utf-8", errors="replace").strip()
                return (
                    f"rank {rank} on {self._hosts.hosts[rank].ssh_hostname} has ended with the "
                    f"code {process.returncode}; it said: {said[-_SAID:] or 'nothing'}"
                )
        return ""

    def end(self) -> None:
        """End them all; a second call does nothing."""
        processes, self._processes = self._processes, []
        for process in processes:
            with suppress(OSError), process:
                process.kill()
        self._folder.cleanup()

    def _start(self, rank: int) -> "subprocess.Popen[bytes]":
        host = self._hosts.hosts[rank].ssh_hostname
        command = [sys.executable, "-m", _MODULE, self._hosts.backend]
        if host in LOCAL:
            own = {**self.environment, "MLX_RANK": str(rank)}
            command = ["env", *(f"{name}={value}" for name, value in own.items()), *command]
        else:
            names = [f"{name}={value}" for name, value in self._names.items()]
            script = RemoteProcess.make_launch_script(
                rank, None, None, self._files, names, command, True
            )
            command = [*_SSH, host, script]
        try:
            with self.log.open("ab") as log:
                return subprocess.Popen(
                    command,
                    bufsize=0,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    start_new_session=True,  # Ctrl+C and Ctrl+Z are for rank 0
                )
        except OSError as error:
            raise RankLostError(f"cannot run {shlex.join(command[:1])}: {error}") from error


def _launch_environment(hosts: Hostfile) -> tuple[dict[str, str], dict[str, str]]:
    """Return the variables of all ranks, and the content of the files that variables name."""
    names = dict(name.split("=", 1) for name in hosts.envs if "=" in name)
    addresses = [host.ips[0] for host in hosts.hosts]
    if hosts.backend == "ring":
        ports = [_FIRST_PORT + host.rank for host in hosts.hosts]
        if all(host.ssh_hostname in LOCAL for host in hosts.hosts):
            ports = _free_ports(len(ports))  # several such groups may run here
        ring = [[f"{one}:{port}"] for one, port in zip(addresses, ports, strict=True)]
        return names, {"MLX_HOSTFILE": json.dumps(ring)}
    names["MLX_JACCL_COORDINATOR"] = f"{addresses[0]}:{_FIRST_PORT}"
    if hosts.backend == "jaccl-ring":
        names["MLX_JACCL_RING"] = "1"
    return names, {"MLX_IBV_DEVICES": json.dumps([host.rdma for host in hosts.hosts])}


def _free_ports(count: int) -> list[int]:
    with ExitStack() as held:  # all open at once, so that all differ
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind((LOCAL[0], 0))
        return [one.getsockname()[1] for one in sockets]


def joined_group(backend: str, log: str = "/dev/null") -> mx.distributed.Group:
    """Return the group that MLX joins, as the environment defines it.

    MLX waits for the other ranks forever and holds the interpreter meanwhile: no thread of this
    process could give up, so another process ends it, and shows the end of `log`.
    """
    message = (
        f"mlxspec: the ranks have started, and not all join within {_JOIN_S} s: look whether they "
        "reach each other's addresses; the others said:"
    )
    script = f'sleep {_JOIN_S}; echo "$0" >&2; tail -c {_SAID} "$1" >&2; kill -KILL $PPID'
    guard = subprocess.Popen(["sh", "-c", script, message, log], start_new_session=True)
    try:
        return mx.distributed.init(strict=True, backend=backend.removesuffix("-ring"))
    except RuntimeError as error:
        raise MlxspecError(f"MLX cannot join the ranks over {backend}: {error}") from error
    finally:
        os.killpg(guard.pid, signal.SIGKILL)  # with its sleep
        guard.wait()
