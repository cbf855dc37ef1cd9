"""The cost of the app for the engine: `python -m mlxspec_app.bench.overhead [arguments of chat]`.

The app, on its own terminal, and `chat --plain` run in two processes and answer the same prompts
in turn: one writes while the other is idle. The first one changes with every prompt, so that a
machine that gets slower affects both equally. Both record traces, and the figures are the engine's
tokens/s, without the prefill. The app's log has the delay of its frames. The last line is one JSON
document.
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
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from mlxspec.trace.events import GenerationFinished, GenerationStarted
from mlxspec.trace.file import read_trace

PROMPTS = (
    "Explain in a few sentences why the sky is blue.",
    "Write a Python function that merges two sorted lists, and explain it.",
    "Give me three tips for a good night's sleep.",
    "Tell me a short story about a lighthouse keeper.",
    "What is the difference between a lake and a pond?",
    "Write a haiku about autumn leaves.",
    "How do I make a simple tomato sauce?",
    "Name five animals that live in the desert.",
    "Why do we have leap years?",
    "Write a polite email that asks for a day off.",
    "What should I see in Lisbon in two days?",
    "Explain what a hash table is.",
    "Describe a thunderstorm in the mountains.",
    "What are the rules of chess, in short?",
    "How does a bicycle stay upright?",
    "Give me an idea for a birthday present.",
)
"""No prompt occurs twice: drafters copy from earlier replies, which would be faster."""
COLUMNS, ROWS = 140, 45
TIMEOUT_S = 600.0
_LOOK_EVERY_S = 0.3
_REST_S = 0.5
_COMMAND = (sys.executable, "-m", "mlxspec", "chat", "--max-tokens", "96")
_QUIT = b"\x11"
_END, _COST = b'{"t":"end"', b'{"t":"cost"'


class Arm(Protocol):
    """A running chat.

    Attributes:
        trace: File of its trace.
    """

    trace: Path

    def say(self, prompt: str) -> None:
        """Send a prompt."""

    def close(self) -> None:
        """End the chat, and wait until it has ended."""


class Lines:
    """The chat without screens, `chat --plain`."""

    def __init__(self, arguments: Sequence[str], folder: Path) -> None:
        """Start the chat and discard its output."""
        self.trace = folder / "lines.jsonl"
        data = ["--data-dir", str(folder / "lines")]  # not the settings of the user
        self._process = subprocess.Popen(
            [*_COMMAND, *data, "--plain", "--trace", str(self.trace), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def say(self, prompt: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{prompt}\n".encode())
        self._process.stdin.flush()

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


class App:
    """The app on a pseudo-terminal; a thread reads and discards its output."""

    def __init__(self, arguments: Sequence[str], folder: Path) -> None:
        """Start the app."""
        self.trace, self._data = folder / "app.jsonl", folder / "app"
        self._data.mkdir()
        (self._data / "chats.sqlite3").touch()  # else the app would show its first run
        settings = ["--data-dir", str(self._data), "--trace", str(self.trace)]
        self._pid, self._terminal = pty.fork()
        if self._pid == 0:
            os.environ["TERM"] = "xterm-256color"
            os.execv(_COMMAND[0], [*_COMMAND, *settings, *arguments])
        fcntl.ioctl(self._terminal, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        threading.Thread(target=self._swallow, daemon=True).start()

    def say(self, prompt: str) -> None:
        os.write(self._terminal, f"{prompt}\r".encode())

    def close(self) -> None:
        os.write(self._terminal, _QUIT)
        os.waitpid(self._pid, 0)

    def frames(self) -> str:
        """Return the line on late frames from the log, after `close`."""
        log = (self._data / "logs" / "app.log").read_text(encoding="utf-8")
        return log.splitlines()[-1].partition("INFO ")[2]

    def _swallow(self) -> None:
        while select.select([self._terminal], [], [])[0]:
            try:
                os.read(self._terminal, 1 << 16)
            except OSError:  # the app has ended, which closes its side of the terminal
                return


def main(arguments: Sequence[str]) -> None:
    """Print tokens/s of both arms by prompt, and the ratios of the pairs."""
    with tempfile.TemporaryDirectory() as name:
        lines, app = Lines(arguments, Path(name)), App(arguments, Path(name))
        _prepare(lines, app)
        for number, prompt in enumerate(PROMPTS):
            for arm in (lines, app) if number % 2 else (app, lines):
                _answer(arm, prompt)
        lines.close()
        app.close()
        speeds = {"lines": _speeds(lines.trace)[1:], "app": _speeds(app.trace)[1:]}
        _report(_models(app.trace), app.frames(), speeds)


def _prepare(lines: Lines, app: App) -> None:
    """Let both load and write one reply, and the app measure its cost curve."""
    _wait(app.trace.exists)
    _answer(lines, "Good morning!")
    _answer(app, "Good morning!")
    _wait(lambda: _COST in app.trace.read_bytes())


def _answer(arm: Arm, prompt: str) -> None:
    """Let an arm answer while the other is idle."""
    before = _count(arm.trace)
    arm.say(prompt)
    _wait(lambda: _count(arm.trace) > before)
    time.sleep(_REST_S)


def _report(models: str, frames: str, speeds: dict[str, list[float]]) -> None:
    pairs = list(zip(speeds["lines"], speeds["app"], strict=True))
    ratios = [app / lines for lines, app in pairs]
    print(f"{models}; tokens/s")
    for prompt, (lines, app), ratio in zip(PROMPTS, pairs, ratios, strict=True):
        print(f"  {lines:7.2f} in lines {app:7.2f} in the app {ratio:6.3f}   {prompt}")
    low, middle, high = statistics.quantiles(ratios, n=4)
    print(f"  app / lines, median of {len(ratios)} pairs: {middle:.3f} ({low:.3f} to {high:.3f})")
    print(f"  {frames}")
    machine = {"machine": platform.machine(), "python": platform.python_version()}
    figures = {"models": models, "tokens_per_s": speeds, "ratio": middle, "frames": frames}
    print(json.dumps({**machine, **figures}))


def _wait(is_done: Callable[[], bool]) -> None:
    """Wait for a condition; check it seldom, because a check costs the engine time too.

    Raises:
        TimeoutError: The condition was not true within `TIMEOUT_S`.
    """
    deadline = time.monotonic() + TIMEOUT_S
    while not is_done():
        if time.monotonic() > deadline:
            raise TimeoutError(f"no reply within {TIMEOUT_S:.0f} s")
        time.sleep(_LOOK_EVERY_S)


def _count(trace: Path) -> int:
    return trace.read_bytes().count(_END) if trace.exists() else 0


def _speeds(trace: Path) -> list[float]:
    ends = [event for event in read_trace(trace) if isinstance(event, GenerationFinished)]
    return [end.stats["generation_tps"] for end in ends]


def _models(trace: Path) -> str:
    started = next(e for e in read_trace(trace) if isinstance(e, GenerationStarted))
    parts = (started.target, started.drafter, started.weights, started.device, started.blas)
    return ", ".join(part for part in parts if part)


if __name__ == "__main__":
    main(sys.argv[1:])
