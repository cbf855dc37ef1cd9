"""Starts the other ranks, locally or over ssh as `mlx.launch` does, and ends them.

A rank reads its standard input and ends with it. So it ends with this process, even if that is
killed, and leaves no orphan.
"""

import json
import os
import shlex
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from mlx._distributed_utils.launch import RemoteProcess

from mlxspec.distributed import doorbell
from mlxspec.distributed.hosts import LOCAL, Hosts
from mlxspec.distributed.rendezvous import not_all_within
from mlxspec.errors import RankLostError

_FIRST_PORT = 32323  # of ranks on other machines, as in mlx.launch
_START_S = 180.0  # a busy machine imports MLX slowly
_LOOK_S = 0.1
_SAID = 300  # last characters of a rank's output, shown if it ends
MODULE = "mlxspec.distributed"
READY = "mlxspec: ready to join"
"""The line that a rank prints right before it joins."""


class Processes:
    """The processes of ranks 1, 2, ...; its methods raise RankLostError if one ends or hangs.

    `environment` has the variables with which this process joins them as rank 0.
    """

    def __init__(self, hosts: Hosts) -> None:
        self._hosts = hosts
        self._folder = tempfile.TemporaryDirectory(prefix="mlxspec-ranks-")
        # Their output, for the message if one ends; open as long as they run.
        self._log = (Path(self._folder.name) / "said.txt").open("ab")
        self._files = self._rank_files()
        names = dict(name.split("=", 1) for name in hosts.envs if "=" in name)
        self._shared = {**names, **self._back_end()}
        self.environment = {**self._shared, **self._local_files(), "MLX_RANK": "0"}
        self._processes: list[subprocess.Popen[bytes]] = []
        for rank in range(1, len(hosts.hosts)):
            self._processes.append(self._start(rank))

    def wait_for_all(self) -> None:
        """Wait until all are about to join, for a few minutes at most."""
        end = time.monotonic() + _START_S
        while self._said().count(READY) < len(self._processes):
            self.check()
            if time.monotonic() > end:
                raise RankLostError(
                    f"not all ranks have started within {_START_S:.0f} s: look whether "
                    f"`{MODULE}` runs on all machines, and ssh asks for nothing"
                )
            time.sleep(_LOOK_S)

    @contextmanager
    def joining(self, seconds: float) -> Iterator[None]:
        """Let MLX join the ranks in this block, for `seconds` at most; see `doorbell.py`."""
        pipes = [process.stdin.fileno() for process in self._processes if process.stdin]
        numbers = [str(seconds), *self._doors(), *map(str, pipes)]
        command = [sys.executable, "-I", "-S", doorbell.__file__, *numbers]
        with subprocess.Popen(command, stdin=subprocess.PIPE, pass_fds=pipes) as bell:
            try:
                yield
            finally:
                bell.communicate()
                self.check()
        if bell.returncode:
            raise RankLostError(not_all_within(seconds))

    def _doors(self) -> list[str]:
        """Return the address where MLX waits for the last rank, and that of the next rank."""
        if coordinator := self._shared.get("MLX_JACCL_COORDINATOR"):
            return [coordinator, coordinator]
        addresses = json.loads(self._files["MLX_HOSTFILE"])
        return [addresses[0][0], addresses[1][0]]

    def _said(self) -> str:
        return Path(self._log.name).read_text(encoding="utf-8", errors="replace")

    def check(self) -> None:
        for rank, process in enumerate(self._processes, 1):
            if process.poll() is not None:
                said = self._said().strip()[-_SAID:] or "nothing"
                raise RankLostError(
                    f"rank {rank} on {self._hosts.hosts[rank].ssh_hostname} has ended with the "
                    f"code {process.returncode} before it could compute; it said: {said}"
                )

    def end(self) -> None:
        """End them all; a second call does nothing."""
        for process in self._processes:
            with suppress(OSError):
                process.kill()
            if process.stdin is not None:
                with suppress(OSError):
                    process.stdin.close()
            with suppress(subprocess.TimeoutExpired):
                process.wait(timeout=5)
        self._folder.cleanup()

    def _start(self, rank: int) -> "subprocess.Popen[bytes]":
        host = self._hosts.hosts[rank].ssh_hostname
        command = [sys.executable, "-m", MODULE, self._hosts.backend]
        environment: Mapping[str, str] | None = None
        if host in LOCAL:
            own = {**self._shared, **self._local_files(), "MLX_RANK": str(rank)}
            environment = {**os.environ, **own}
        else:
            names = [f"{name}={value}" for name, value in self._shared.items()]
            script = RemoteProcess.make_launch_script(
                rank, None, None, self._files, names, command, False
            )
            command = ["ssh", "-tt", "-o", "LogLevel=QUIET", host, script]
        try:
            return subprocess.Popen(
                command,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=self._log,
                stderr=self._log,
                start_new_session=True,  # Ctrl+C and Ctrl+Z are for rank 0
            )
        except OSError as error:
            self.end()
            raise RankLostError(f"cannot run {shlex.join(command[:2])}: {error}") from error

    def _rank_files(self) -> dict[str, str]:
        """Return the content of the files that MLX reads, by environment variable."""
        if self._hosts.backend == "ring":
            return {"MLX_HOSTFILE": json.dumps([[address] for address in self._addresses()])}
        return {"MLX_IBV_DEVICES": json.dumps([host.rdma for host in self._hosts.hosts])}

    def _local_files(self) -> dict[str, str]:
        paths = {}
        for name, content in self._files.items():
            path = Path(self._folder.name) / f"{name}.json"
            path.write_text(content, encoding="utf-8")
            paths[name] = str(path)
        return paths

    def _back_end(self) -> dict[str, str]:
        if self._hosts.backend == "ring":
            return {}
        names = {"MLX_JACCL_COORDINATOR": f"{self._hosts.hosts[0].ips[0]}:{_FIRST_PORT}"}
        if self._hosts.backend == "jaccl-ring":
            names["MLX_JACCL_RING"] = "1"
        return names

    def _addresses(self) -> list[str]:
        if self._hosts.are_local:
            return [f"{host.ips[0]}:{port}" for host, port in self._with_ports()]
        return [f"{host.ips[0]}:{_FIRST_PORT + host.rank}" for host in self._hosts.hosts]

    def _with_ports(self) -> list[tuple[Any, int]]:
        sockets = [socket.socket() for _ in self._hosts.hosts]  # all open, so that all differ
        for one in sockets:
            one.bind((LOCAL[0], 0))
        ports = [one.getsockname()[1] for one in sockets]
        for one in sockets:
            one.close()
        return list(zip(self._hosts.hosts, ports, strict=True))
