"""What the app costs the engine: `python -m mlxspec_app.bench.overhead [arguments of mlxspec]`.

Three arms answer the same prompts in turn: `mlxspec generate`, the app in the calm view, and the
app in the X-ray. Each runs in a new process with new user data, so none has learned more than
another. The order rotates with every prompt, so a machine that slows down affects all equally.
First output is the first frame of the app, and the first text of `generate`. Tokens/s are those of
the trace, without the prefill. Ratios are of the arms of one prompt. The last line is one JSON
document.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from mlxspec.trace.events import GenerationFinished, GenerationStarted
from mlxspec.trace.file import read_trace
from mlxspec_app.bench.terminal import Terminal

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
_TIMEOUT_S, _LOOK_EVERY_S = 600.0, 0.3
_QUIT, _END = b"\x11", b'{"t":"end"'


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


def generate(prompt: str, arguments: Sequence[str], folder: Path) -> Run:
    """Answer a prompt with `mlxspec generate`."""
    trace, began = folder / "trace.jsonl", time.monotonic()
    command = [sys.executable, "-m", "mlxspec", "generate", "--prompt", prompt]
    with subprocess.Popen(
        [*command, "--trace", str(trace), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "MLXSPEC_HOME": str(folder)},
    ) as process:
        assert process.stdout is not None
        process.stdout.read(1)
        first_text_s = time.monotonic() - began
        process.stdout.read()
    return _run(first_text_s, trace)


def chat(prompt: str, arguments: Sequence[str], folder: Path, *, view: str) -> Run:
    """Answer a prompt in the app, in a view.

    Raises:
        TimeoutError: There was no reply in time.
    """
    trace = folder / "trace.jsonl"
    (folder / "chats.sqlite3").touch()  # else the app would show its first run
    (folder / "settings.toml").write_text(f'view = "{view}"\n', encoding="utf-8")
    command = ["mlxspec", "chat", "--trace", str(trace), *arguments]
    app = Terminal(command, {"MLXSPEC_HOME": str(folder)})
    try:
        app.wait_for_frame(_TIMEOUT_S)
        app.type(f"{prompt}\r".encode())
        deadline = time.monotonic() + _TIMEOUT_S
        while not (trace.exists() and _END in trace.read_bytes()):
            if time.monotonic() > deadline:
                raise TimeoutError(f"no reply within {_TIMEOUT_S:.0f} s")
            time.sleep(_LOOK_EVERY_S)  # seldom, because a look costs the engine time too
        app.type(_QUIT)
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
        figures = (
            f"{name} {found[-1].first_output_s:5.2f} s {found[-1].tokens_per_s:7.2f} tokens/s"
            for name, found in runs.items()
        )
        print(f"  {' · '.join(figures)}   {prompt}", flush=True)
    _report(runs)


def _report(runs: dict[str, list[Run]]) -> None:
    ratios = {}
    for name in ("calm", "xray"):
        pairs = zip(runs[name], runs["generate"], strict=True)
        shares = sorted(app.tokens_per_s / alone.tokens_per_s for app, alone in pairs)
        ratios[name] = median(shares)
        frame_s = median(run.first_output_s for run in runs[name])
        print(
            f"{name}: first frame {frame_s:.2f} s; {ratios[name]:.3f} of the tokens/s of generate "
            f"(median of {len(shares)}; {shares[0]:.3f} to {shares[-1]:.3f})"
        )
    print(f"{runs['generate'][0].models}")
    machine = {"machine": platform.machine(), "python": platform.python_version()}
    found = {name: [asdict(run) for run in each] for name, each in runs.items()}
    print(json.dumps({**machine, "ratios": ratios, "runs": found}))


def _run(first_output_s: float, trace: Path) -> Run:
    events = list(read_trace(trace))
    started = next(event for event in events if isinstance(event, GenerationStarted))
    end = next(event for event in events if isinstance(event, GenerationFinished))
    parts = (started.target, started.drafter, started.weights, started.device, started.blas)
    models = ", ".join(part for part in parts if part)
    return Run(first_output_s, end.stats["generation_tps"], models)


if __name__ == "__main__":
    main()
