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

OURS, THEIRS = "mlxspec", "mlx-lm"
_COMMANDS = {
    OURS: ("-m", "mlxspec", "serve"),
    # With the same BLAS as ours, which works only before MLX is imported.
    THEIRS: ("-c", "import mlxspec, runpy; runpy.run_module('mlx_lm.server', run_name='__main__')"),
}


@dataclass(frozen=True)
class Served:
    """A server that answers.

    Attributes:
        name: Whose it is.
        url: Its address.
        model: The name of its model.
        pid: Its process.
    """

    name: str
    url: str
    model: str
    pid: int


@contextmanager
def served(flags: Sequence[str] = (), name: str = OURS) -> Iterator[Served]:
    """Run a server until the block ends.

    Args:
        flags: Further flags of it.
        name: Whose server it is.
    """
    port = _free_port()
    where = ["--host", "127.0.0.1", "--port", str(port)]
    command = [sys.executable, *_COMMANDS[name], *where, *flags]
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            url = f"http://127.0.0.1:{port}"
            _wait_for(url, process)
            yield Served(name, url, _model_of(name, url), process.pid)
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


def _wait_for(url: str, process: "subprocess.Popen[bytes]") -> None:
    for _ in range(1200):
        if process.poll() is not None:
            raise RuntimeError(f"the server ended with {process.returncode}")
        try:
            with urlopen(f"{url}/health", timeout=30):
                return
        except (URLError, OSError):
            time.sleep(0.5)
    raise RuntimeError("the server did not answer within ten minutes")


def _model_of(name: str, url: str) -> str:
    """Return the name by which a server's own model is asked for."""
    if name == THEIRS:
        return "default_model"
    with urlopen(f"{url}/v1/models", timeout=30) as response:
        return str(json.load(response)["data"][0]["id"])
