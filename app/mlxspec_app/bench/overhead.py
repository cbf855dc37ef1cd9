"""What the app costs the engine: `python -m mlxspec_app.bench.overhead [arguments of chat]`.

The same prompts are answered in the app, on a terminal of its own, and in the chat of bare lines,
by turns and in processes of their own. Both record traces, and the figures are the engine's: how
many tokens a second it wrote, prompts left out. The app's log says how late its frames came
meanwhile. The last line is one JSON document.
"""

import fcntl
import json
import os
import platform
import pty
import select
import statistics
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from mlxspec.events import GenerationFinished, GenerationStarted
from mlxspec.trace import read_trace

PROMPTS = (
    "Explain in a few sentences why the sky is blue.",
    "Write a Python function that merges two sorted lists, and explain it.",
    "Give me three tips for a good night's sleep.",
    "Tell me a short story about a lighthouse keeper.",
)
REPEATS = 3
COLUMNS, ROWS = 140, 45
TIMEOUT_S = 600.0
_LOOK_EVERY_S = 0.3
_COMMAND = (sys.executable, "-m", "mlxspec", "chat", "--max-tokens", "160")
_QUIT = b"\x11"
_END = b'{"t":"end"'


def speeds_of_lines(arguments: Sequence[str], folder: Path) -> list[float]:
    """Return tokens/s of every reply of the chat of bare lines."""
    trace = folder / "lines.jsonl"
    settings = ["--data-dir", str(folder / "data")]  # not those of the user
    command = [*_COMMAND, *settings, "--plain", "--trace", str(trace), *arguments]
    lines = "".join(f"{prompt}\n" for prompt in PROMPTS)
    subprocess.run(command, input=lines, text=True, capture_output=True, check=True)
    return _speeds(trace)


def speeds_of_app(arguments: Sequence[str], folder: Path) -> tuple[list[float], str]:
    """Return tokens/s of every reply in the app, and its log's line on late frames."""
    trace, data = folder / "app.jsonl", folder / "data"
    command = [*_COMMAND, "--data-dir", str(data), "--trace", str(trace), *arguments]
    data.mkdir()
    (data / "chats.sqlite3").touch()  # nobody new, who would be introduced first
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ["TERM"] = "xterm-256color"
        os.execv(command[0], command)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    _read_until(terminal, trace.exists)
    _read_for(terminal, 1.0)
    for number, prompt in enumerate(PROMPTS, 1):
        os.write(terminal, f"{prompt}\r".encode())
        _read_until(terminal, partial(_has_replies, trace, number))
    os.write(terminal, _QUIT)
    _read_for(terminal, TIMEOUT_S)
    os.waitpid(pid, 0)
    os.close(terminal)
    log = (data / "logs" / "app.log").read_text(encoding="utf-8")
    return _speeds(trace), log.splitlines()[-1].partition("INFO ")[2]


def main(arguments: Sequence[str]) -> None:
    """Print tokens/s of both arms by prompt, and their ratio."""
    runs: dict[str, list[list[float]]] = {"lines": [], "app": []}
    frames = []
    for _ in range(REPEATS):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            runs["lines"].append(speeds_of_lines(arguments, folder))
            in_app, late = speeds_of_app(arguments, folder)
            runs["app"].append(in_app)
            frames.append(late)
            models = _models(folder / "app.jsonl")
    ratios = []
    print(f"{models}; tokens/s, median of {REPEATS}")
    for place, prompt in enumerate(PROMPTS):
        lines, app = (statistics.median(run[place] for run in runs[arm]) for arm in runs)
        ratios.append(app / lines)
        print(f"  {lines:7.2f} in lines {app:7.2f} in the app {app / lines:6.3f}   {prompt}")
    print(f"  app / lines: {statistics.mean(ratios):.3f}")
    print(*(f"  {late}" for late in frames), sep="\n")
    machine = {"machine": platform.machine(), "python": platform.python_version()}
    print(json.dumps({**machine, "models": models, "tokens_per_s": runs, "frames": frames}))


def _read_for(terminal: int, seconds: float) -> None:
    _read_until(terminal, lambda: False, seconds)


def _read_until(terminal: int, is_done: Callable[[], bool], timeout_s: float = TIMEOUT_S) -> None:
    """Swallow what the app paints until something is so, or it has ended.

    Whether it is so is looked at a few times a second only: looking costs the engine time too.
    """
    deadline, look_at = time.monotonic() + timeout_s, 0.0
    while (now := time.monotonic()) < deadline:
        if now >= look_at:
            if is_done():
                return
            look_at = now + _LOOK_EVERY_S
        if not select.select([terminal], [], [], _LOOK_EVERY_S)[0]:
            continue
        try:
            os.read(terminal, 1 << 16)
        except OSError:  # the app has gone, and its side of the terminal with it
            return


def _has_replies(trace: Path, number: int) -> bool:
    return trace.read_bytes().count(_END) == number


def _speeds(trace: Path) -> list[float]:
    ends = [event for event in read_trace(trace) if isinstance(event, GenerationFinished)]
    return [end.stats["generation_tps"] for end in ends]


def _models(trace: Path) -> str:
    started = next(e for e in read_trace(trace) if isinstance(e, GenerationStarted))
    parts = (started.target, started.drafter, started.weights, started.device, started.blas)
    return ", ".join(part for part in parts if part)


if __name__ == "__main__":
    main(sys.argv[1:])
