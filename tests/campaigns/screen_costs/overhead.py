"""Measures what the app costs the engine: by hand.

    python -m tests.campaigns.screen_costs.overhead [arguments of mlxspec]

Three arms answer the same prompts in rotating order: `mlxspec generate`, the app in the calm view,
and the app in the X-ray, each in a new process with new user data. Tokens/s are those of the trace,
without the prefill; ratios are of the arms of one prompt. The last line is one JSON document.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from mlxspec.trace.events import GenerationFinished
from mlxspec.trace.file import read_trace
from mlxspec_app.bench.startup import Terminal

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


def generate(prompt: str, arguments: Sequence[str], trace: Path) -> float:
    """Answer a prompt with `mlxspec generate`; return the seconds to its first output."""
    began = time.monotonic()
    command = [sys.executable, "-m", "mlxspec", "generate", "--prompt", prompt]
    with subprocess.Popen(
        [*command, "--trace", str(trace), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "MLXSPEC_HOME": str(trace.parent)},
    ) as process:
        assert process.stdout is not None
        process.stdout.read(1)
        first_output_s = time.monotonic() - began
        process.stdout.read()
    return first_output_s


def chat(prompt: str, arguments: Sequence[str], trace: Path, *, view: str) -> float:
    """Answer a prompt in the app, in a view; return the seconds to its first frame."""
    home = trace.parent
    (home / "chats.sqlite3").touch()  # else the app would show its first run
    (home / "settings.toml").write_text(f'view = "{view}"\n', encoding="utf-8")
    command = ["mlxspec", "chat", "--trace", str(trace), *arguments]
    app = Terminal(command, {"MLXSPEC_HOME": str(home)})
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
    return app.first_frame_s


ARMS: dict[str, Callable[[str, Sequence[str], Path], float]] = {
    "generate": generate,
    "calm": partial(chat, view="calm"),
    "xray": partial(chat, view="xray"),
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Print first output and tokens/s of each arm by prompt, and the ratios to `generate`."""
    parser = argparse.ArgumentParser(prog="python -m tests.campaigns.screen_costs.overhead")
    parser.add_argument("--prompts", type=int, default=len(PROMPTS), metavar="COUNT")
    own, given = parser.parse_known_args(arguments)
    given = ["--temp", "0", "--max-tokens", "96", *given]
    runs: dict[str, list[tuple[float, float]]] = {name: [] for name in ARMS}
    for number, prompt in enumerate(PROMPTS[: own.prompts]):
        for name in [*ARMS][number % 3 :] + [*ARMS][: number % 3]:
            with TemporaryDirectory() as folder:
                trace = Path(folder) / "trace.jsonl"
                first_output_s = ARMS[name](prompt, given, trace)
                ends = [one for one in read_trace(trace) if isinstance(one, GenerationFinished)]
            runs[name].append((first_output_s, ends[0].stats["generation_tps"]))
        figures = (
            f"{name} {found[-1][0]:5.2f} s {found[-1][1]:7.2f} tokens/s"
            for name, found in runs.items()
        )
        print(f"  {' · '.join(figures)}   {prompt}", flush=True)
    ratios = {}
    for name in ("calm", "xray"):
        pairs = zip(runs[name], runs["generate"], strict=True)
        shares = sorted(app_tps / alone_tps for (_, app_tps), (_, alone_tps) in pairs)
        ratios[name] = median(shares)
        print(
            f"{name}: first frame {median(frame_s for frame_s, _ in runs[name]):.2f} s; "
            f"{ratios[name]:.3f} of the tokens/s of generate (median of {len(shares)}; "
            f"{shares[0]:.3f} to {shares[-1]:.3f})"
        )
    print(json.dumps({"ratios": ratios, "runs": runs}))


if __name__ == "__main__":
    main()
