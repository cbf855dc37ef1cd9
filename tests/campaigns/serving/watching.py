"""What the process of a server uses, sampled while it is used; Linux alone tells it in /proc."""

import os
import threading
import time
from pathlib import Path
from urllib.request import urlopen

from tests.campaigns.serving.process import Served

Sample = dict[str, float]
_MB, _PAGE = 1e6, os.sysconf("SC_PAGE_SIZE")


def use_of(server: Served) -> Sample:
    """Return the memory in MB, the threads and the open files of a server."""
    proc = Path(f"/proc/{server.pid}")
    return {
        "rss_mb": int((proc / "statm").read_text().split()[1]) * _PAGE / _MB,
        "threads": len(os.listdir(proc / "task")),
        "files": len(os.listdir(proc / "fd")),
    }


class Sampler:
    """Takes a sample every some seconds.

    Attributes:
        samples: What was found so far, each with its `hours`.
    """

    def __init__(self, server: Served, every_s: float) -> None:
        """Prepare it; `with` runs it.

        Args:
            server: Whose process.
            every_s: Seconds from one sample to the next.
        """
        self.samples: list[Sample] = []
        self._server, self._every_s = server, every_s
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "Sampler":
        self._begin = time.monotonic()
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._is_over.wait(self._every_s):
            hours = (time.monotonic() - self._begin) / 3600
            self.samples.append({"hours": hours} | use_of(self._server))


def at_rest(server: Served, patience_s: float = 120) -> Sample:
    """Wait until no reply is written and the open files are few again; return what is used then.

    Raises:
        AssertionError: Replies are still written though nobody reads them.
    """
    deadline = time.monotonic() + patience_s
    while _num_replies(server):
        assert time.monotonic() < deadline, "replies are written for clients that have gone"
        time.sleep(0.5)
    time.sleep(3)  # for connections that are being closed
    return use_of(server)


def _num_replies(server: Served) -> float:
    with urlopen(f"{server.url}/metrics", timeout=600) as response:
        lines = response.read().decode().splitlines()
    return next(
        float(line.split()[1]) for line in lines if line.startswith("mlxspec_replies_running")
    )
