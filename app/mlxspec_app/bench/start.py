"""Starts measurements, each in a new process, on a pseudo-terminal if the platform has them."""

import json
import os
import subprocess
import sys
import tempfile
import threading
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from mlxspec_app.bench.measure import Case

try:
    import fcntl
    import pty
    import struct
    import termios
except ImportError:  # no pseudo-terminals on this platform
    HAS_PTY = False
else:
    HAS_PTY = True

_ROWS, _COLUMNS = 50, 140
_FASTEST_FPS = "500"  # Textual waits between frames, which would only make the run longer


def measure(case: Case, *, headless: bool) -> list[float]:
    """Run a case in its own process and return its figures.

    Raises:
        RuntimeError: The process failed.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "figures.json"
        command = [
            sys.executable,
            "-m",
            "mlxspec_app.bench.one",
            json.dumps(asdict(case)),
            str(path),
        ]
        environment = {**os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor"}
        if case.measures == "cost":
            environment["TEXTUAL_FPS"] = _FASTEST_FPS
        if headless:
            code = subprocess.run([*command, "--headless"], env=environment, check=False).returncode
        else:
            code = _run_on_pty(command, environment)
        if code or not path.exists():
            raise RuntimeError(f"the measurement of {case} ended with exit code {code}")
        figures: list[float] = json.loads(path.read_text())
    return figures


def _run_on_pty(command: list[str], environment: dict[str, str]) -> int:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", _ROWS, _COLUMNS, 0, 0))
    process = subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment, start_new_session=True
    )
    os.close(theirs)
    reader = threading.Thread(target=_throw_away, args=(ours,))
    reader.start()
    code = process.wait()
    reader.join()
    os.close(ours)
    return code


def _throw_away(file: int) -> None:
    """Read and discard the output of the app until it ends, as a terminal would."""
    with suppress(OSError):  # Linux raises this when the other side is closed
        while os.read(file, 1 << 16):
            pass
