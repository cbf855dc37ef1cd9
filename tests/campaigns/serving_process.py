"""A server as a process of its own, for campaigns: `mlxspec serve`, or mlx-lm's to compare with."""

import json
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.error import URLError
from urllib.request import urlopen


@dataclass(frozen=True)
class Served:
    """A server that answers.

    Attributes:
        url: Its address.
        model: The name of its model.
        pid: Its process.
    """

    url: str
    model: str
    pid: int


@contextmanager
def served(
    flags: Sequence[str] = (), module: Sequence[str] = ("mlxspec", "serve")
) -> Iterator[Served]:
    """Run a server until the block ends.

    Args:
        flags: Further flags of it.
        module: The module that Python runs, and words before the flags.
    """
    port = _free_port()
    command = [sys.executable, "-m", *module, "--host", "127.0.0.1", "--port", str(port), *flags]
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            url = f"http://127.0.0.1:{port}"
            yield Served(url, _model_of(url, process), process.pid)
        except BaseException:
            log.seek(0)
            print(log.read()[-3000:], file=sys.stderr)
            raise
        finally:
            process.terminate()
            process.wait(60)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])


def _model_of(url: str, process: "subprocess.Popen[bytes]") -> str:
    """Wait for the server, and return the name of the first model that it names."""
    for _ in range(1200):
        if process.poll() is not None:
            raise RuntimeError(f"the server ended with {process.returncode}")
        try:
            with urlopen(f"{url}/v1/models", timeout=30) as response:
                return str(json.load(response)["data"][0]["id"])
        except (URLError, OSError):
            time.sleep(0.5)
    raise RuntimeError("the server did not answer within ten minutes")
