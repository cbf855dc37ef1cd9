"""What the app costs the engine: `python -m mlxspec_app.bench.overhead [arguments of mlxspec]`.

Three arms answer the same prompts in turn: `mlxspec generate`, the app in the calm view, and the
app in the X-ray. Each runs in a new process with new user data, so none has learned more than
another. The order rotates with every prompt, so a machine that slows down affects all equally.
First output is the first frame of the app, and the first text of `generate`. Tokens/s are those of
the trace, without the prefill. Ratios are of the arms of one prompt. The last line is one JSON
document.
"""

import argparse
import fcntl
import json
import os
import platform
import pty
import signal
import statistics
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread

from mlxspec.trace.events import GenerationFinished, GenerationStarted
from mlxspec.trace.file import read_trace

PROMPTS = (
    "Explain in a few sentences why the sky is blue.",
    "Write a Python function that merges two sorted lists, and explain it.",
    "Give me three tips for a good night's sleep.",
    "Tell me a short story about a lighthouse keeper.",
    "What is the difference between a lake and a pond?",
    "How do I make a simple tomato sauce?",
    "Why do we have leap years?",
    "Describe a thunderstorm in the mountains.",
)
COLUMNS, ROWS = 140, 45
TIMEOUT_S = 600.0
_LOOK_EVERY_S = 0.3
_SCREEN_TAKEN, _NAME = b"\x1b[?1049h", b" mlxspec "
_QUIT = b"\x11"
_END = b'{"t":"end"'
_MLXSPEC = (sys.executable, "-m", "mlxspec")


@dataclass(frozen=True)
class Run:
    """One reply of one arm.

    Attributes:
        first_output_s: Seconds from the start of the process to its first frame, or first text.
        models: Model, drafter and device in words.
    """

    first_output_s: float
    tokens_per_s: float
    models: str


class App:
    """The app on its own terminal; a thread reads what it draws."""

    def __init__(self, arguments: Sequence[str], environment: dict[str, str]) -> None:
        self.first_frame_s = 0.0
        self._began = time.monotonic()
        self._pid, self._terminal = pty.fork()
        if self._pid == 0:
            os.execve(_MLXSPEC[0], [*_MLXSPEC, "chat", *arguments], environment)
        size = struct.pack("HHHH", ROWS, COLUMNS, 0, 0)
        fcntl.ioctl(self._terminal, termios.TIOCSWINSZ, size)
        self._reader = Thread(target=self._read, daemon=True)
        self._reader.start()

    def type(self, keys: bytes) -> None:
        os.write(self._terminal, keys)

    def end(self) -> None:
        """Quit and wait for the end; kill the app if it does not end."""
        deadline = time.monotonic() + TIMEOUT_S
        self.type(_QUIT)
        while os.waitpid(self._pid, os.WNOHANG) == (0, 0):
            time.sleep(_LOOK_EVERY_S)
            if time.monotonic() > deadline:
                os.kill(self._pid, signal.SIGKILL)
        self._reader.join()
        os.close(self._terminal)

    def _read(self) -> None:
        drawn = b""
        with suppress(OSError):  # the process has ended, which closes its side of the terminal
            while data := os.read(self._terminal, 1 << 16):
                if not self.first_frame_s:
                    drawn += data
                    if _NAME in drawn.partition(_SCREEN_TAKEN)[2]:
                        self.first_frame_s = time.monotonic() - self._began


def generate(prompt: str, arguments: Sequence[str], folder: Path) -> Run:
    """Answer a prompt with `mlxspec generate`."""
    trace = folder / "trace.jsonl"
    began = time.monotonic()
    command = [*_MLXSPEC, "generate", "--prompt", prompt, "--trace", str(trace), *arguments]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=_environment(folder)
    ) as process:
        assert process.stdout is not None
        process.stdout.read(1)
        first_text_s = time.monotonic() - began
        process.stdout.read()
    return _run(first_text_s, trace)


def chat(prompt: str, arguments: Sequence[str], folder: Path, *, view: str) -> Run:
    """Answer a prompt in the app, in a view."""
    trace = folder / "trace.jsonl"
    (folder / "chats.sqlite3").touch()  # else the app would show its first run
    (folder / "settings.toml").write_text(f'view = "{view}"\n', encoding="utf-8")
    app = App(["--trace", str(trace), *arguments], _environment(folder))
    try:
        _wait(lambda: app.first_frame_s > 0)
        app.type(f"{prompt}\r".encode())
        _wait(lambda: trace.exists() and _END in trace.read_bytes())
    finally:
        app.end()
    return _run(app.first_frame_s, trace)


ARMS: dict[str, Callable[[str, Sequence[str], Path], Run]] = {
    "generate": generate,
    "calm": partial(chat, view="calm"),
    "xray": partial(chat, view="xray"),
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Print first output and tokens/s of each arm by prompt, and the ratios to `generate`."""
    parser = argparse.ArgumentParser(prog="python -m mlxspec_app.bench.overhead")
    parser.add_argument("--prompts", type=int, default=len(PROMPTS), metavar="COUNT")
    own, given = parser.parse_known_args(arguments)
    given = ["--temp", "0", "--max-tokens", "96", *given]
    runs: dict[str, list[Run]] = {name: [] for name in ARMS}
    for number, prompt in enumerate(PROMPTS[: own.prompts]):
        names = list(ARMS)
        turned = number % len(names)
        for name in names[turned:] + names[:turned]:
            with TemporaryDirectory() as folder:
                runs[name].append(ARMS[name](prompt, given, Path(folder)))
        print(_row(prompt, {name: found[-1] for name, found in runs.items()}), flush=True)
    _report(runs)


def _row(prompt: str, found: dict[str, Run]) -> str:
    figures = (
        f"{name} {run.first_output_s:5.2f} s {run.tokens_per_s:7.2f} tokens/s"
        for name, run in found.items()
    )
    return f"  {' · '.join(figures)}   {prompt}"


def _report(runs: dict[str, list[Run]]) -> None:
    ratios = {}
    for name in ("calm", "xray"):
        pairs = zip(runs[name], runs["generate"], strict=True)
        shares = sorted(app.tokens_per_s / alone.tokens_per_s for app, alone in pairs)
        ratios[name] = statistics.median(shares)
        frame_s = statistics.median(run.first_output_s for run in runs[name])
        print(
            f"{name}: first frame {frame_s:.2f} s; {ratios[name]:.3f} of the tokens/s of generate "
            f"(median of {len(shares)}; {shares[0]:.3f} to {shares[-1]:.3f})"
        )
    print(f"{runs['generate'][0].models}")
    machine = {"machine": platform.machine(), "python": platform.python_version()}
    found = {name: [asdict(run) for run in each] for name, each in runs.items()}
    print(json.dumps({**machine, "ratios": ratios, "runs": found}))


def _environment(folder: Path) -> dict[str, str]:
    """Return the environment of a process whose user data are in a folder."""
    return {**os.environ, "MLXSPEC_HOME": str(folder), "TERM": "xterm-256color"}


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


def _run(first_output_s: float, trace: Path) -> Run:
    events = list(read_trace(trace))
    started = next(event for event in events if isinstance(event, GenerationStarted))
    end = next(event for event in events if isinstance(event, GenerationFinished))
    parts = (started.target, started.drafter, started.weights, started.device, started.blas)
    models = ", ".join(part for part in parts if part)
    return Run(first_output_s, end.stats["generation_tps"], models)


if __name__ == "__main__":
    main()
