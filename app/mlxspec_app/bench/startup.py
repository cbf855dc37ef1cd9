"""The time of a command to its first painted frame: `python -m mlxspec_app.bench.startup`.

Each run is a new process on its own terminal, as a user would start it. The clock stops at the
first bytes that paint the app's name after the command has switched to the alternate screen. Then
the process is killed: the time excludes everything later, such as loading a model. Processor time
shows how much a busy machine added. The arguments are those of mlxspec; the default is a chat with
its store in a temporary folder. The last line is one JSON document.
"""

import fcntl
import json
import os
import pty
import select
import signal
import statistics
import struct
import sys
import termios
import time
from collections.abc import Sequence
from dataclasses import dataclass
from tempfile import TemporaryDirectory

RUNS = 9
TIMEOUT_S = 30.0
COLUMNS, ROWS = 100, 30
_SCREEN_TAKEN = b"\x1b[?1049h"
_NAME = b" mlxspec "


@dataclass(frozen=True)
class Start:
    """One start of a command.

    Attributes:
        first_frame_s: Seconds from the start of the process to its first painted frame.
        processor_s: Processor seconds used until then.
    """

    first_frame_s: float
    processor_s: float


def start(arguments: Sequence[str]) -> Start:
    """Start mlxspec with some arguments, and kill it after its first frame.

    Raises:
        RuntimeError: The process ended, or painted no frame in time; the message has its output.
    """
    began = time.monotonic()
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ["TERM"] = "xterm-256color"
        os.execv(sys.executable, [sys.executable, "-m", "mlxspec", *arguments])
    try:
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        first_frame_s = _wait_for_frame(terminal, began)
    finally:
        os.kill(pid, signal.SIGKILL)
        _, _, used = os.wait4(pid, 0)
        os.close(terminal)
    return Start(first_frame_s, used.ru_utime + used.ru_stime)


def _wait_for_frame(terminal: int, began: float) -> float:
    written = b""
    while select.select([terminal], [], [], max(0.0, began + TIMEOUT_S - time.monotonic()))[0]:
        try:
            written += os.read(terminal, 65536)
        except OSError:  # the process has ended, which closes its side of the terminal
            break
        if _NAME in written.partition(_SCREEN_TAKEN)[2]:
            return time.monotonic() - began
    raise RuntimeError(f"no frame was painted; got {written[-2000:].decode(errors='replace')!r}")


def starts(arguments: Sequence[str], runs: int = RUNS) -> list[Start]:
    """Return several starts, the fastest first; a first run loads files into the page cache."""
    start(arguments)
    return sorted((start(arguments) for _ in range(runs)), key=lambda one: one.first_frame_s)


def median_start() -> Start:
    """Return the median start of a chat with a store of its own."""
    with TemporaryDirectory() as folder:
        return starts(["chat", "--data-dir", folder])[RUNS // 2]


def main(arguments: Sequence[str]) -> None:
    """Print median, best and worst of several starts."""
    found = starts(arguments)
    times = [one.first_frame_s for one in found]
    processor_s = statistics.median(one.processor_s for one in found)
    print(
        f"mlxspec {arguments[0]}: first frame after {statistics.median(times):.3f} s "
        f"(median of {RUNS}; {times[0]:.3f} to {times[-1]:.3f}); "
        f"processor {processor_s:.3f} s"
    )
    figures = {"runs": RUNS, "median_s": statistics.median(times), "best_s": times[0]}
    print(json.dumps({**figures, "worst_s": times[-1], "processor_s": processor_s}))


if __name__ == "__main__":
    with TemporaryDirectory() as folder:
        main(sys.argv[1:] or ["chat", "--data-dir", folder])
