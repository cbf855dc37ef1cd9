"""The time of a command to its first painted frame: `python -m mlxspec_app.bench.startup`.

Each run is a new process on its own terminal, which is killed after its first frame. Processor time
shows how much a busy machine added. The last line is one JSON document.
"""

import fcntl
import json
import os
import pty
import signal
import struct
import sys
import termios
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from statistics import median
from tempfile import TemporaryDirectory
from threading import Event, Thread

COLUMNS, ROWS = 140, 50
_SCREEN_TAKEN, _NAME = b"\x1b[?1049h", b" mlxspec "
_ENDS_IN_S = 60.0
RUNS = 9
_TIMEOUT_S = 30.0


class Terminal:
    """The app in a process and on a terminal of its own; a thread discards what it draws."""

    def __init__(self, arguments: Sequence[str], environment: Mapping[str, str]) -> None:
        """Start `python -m` with some arguments; `environment` is added to that of this process."""
        self.first_frame_s = 0.0  # seconds to the app's name on the alternate screen
        self.processor_s = 0.0  # that the process used, once it has ended
        self._drawn = b""
        self._is_painted = Event()
        self._began = time.monotonic()
        self._pid, self._file = pty.fork()
        if self._pid == 0:
            own = {**os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor", **environment}
            os.execve(sys.executable, [sys.executable, "-m", *arguments], own)
        fcntl.ioctl(self._file, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        self._reader = Thread(target=self._read, daemon=True)
        self._reader.start()

    def wait_for_frame(self, seconds: float) -> None:
        """Wait for the first frame; the `RuntimeError` of a process without one has its output."""
        self._is_painted.wait(seconds)
        if not self.first_frame_s:
            drawn = self._drawn[-2000:].decode(errors="replace")
            raise RuntimeError(f"no frame was painted; got {drawn!r}")

    def type(self, keys: bytes) -> None:
        os.write(self._file, keys)

    def end(self, seconds: float = _ENDS_IN_S) -> int:
        """Wait for the end of the process, kill it after some seconds, and return its exit code."""
        self._reader.join(seconds)
        with suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGKILL)
        _, status, used = os.wait4(self._pid, 0)
        self.processor_s = used.ru_utime + used.ru_stime
        self._reader.join()
        os.close(self._file)
        return os.waitstatus_to_exitcode(status)

    def _read(self) -> None:
        with suppress(OSError):  # the process has ended, which closes its side of the terminal
            while data := os.read(self._file, 1 << 16):
                if not self.first_frame_s:
                    self._drawn += data
                    if _NAME in self._drawn.partition(_SCREEN_TAKEN)[2]:
                        self.first_frame_s = time.monotonic() - self._began
                        self._is_painted.set()
        self._is_painted.set()


def start(arguments: Sequence[str]) -> tuple[float, float]:
    """Return seconds of mlxspec to its first frame, and processor seconds."""
    terminal = Terminal(["mlxspec", *arguments], {})
    try:
        terminal.wait_for_frame(_TIMEOUT_S)
    finally:
        terminal.end(0)
    return terminal.first_frame_s, terminal.processor_s


def figures(arguments: Sequence[str] = ()) -> dict[str, float]:
    """Return the figures of several starts, of a chat in a temporary folder by default."""
    with TemporaryDirectory() as folder:
        arguments = arguments or ["chat", "--data-dir", folder]
        start(arguments)  # loads files into the page cache
        seconds, processor = zip(*(start(arguments) for _ in range(RUNS)), strict=True)
    return {
        "runs": RUNS,
        "median_s": median(seconds),
        "best_s": min(seconds),
        "worst_s": max(seconds),
        "processor_s": median(processor),
    }


def main(arguments: Sequence[str]) -> None:
    """Print median, best and worst of several starts."""
    found = figures(arguments)
    print(
        f"first frame after {found['median_s']:.3f} s (median of {RUNS}; {found['best_s']:.3f} to "
        f"{found['worst_s']:.3f}); processor {found['processor_s']:.3f} s"
    )
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1:])
