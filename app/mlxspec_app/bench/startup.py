"""The time of a command to its first painted frame: `python -m mlxspec_app.bench.startup`.

Each run is a new process on its own terminal, which is killed after its first frame. Processor time
shows how much a busy machine added. The last line is one JSON document.
"""

import json
import sys
from collections.abc import Sequence
from statistics import median
from tempfile import TemporaryDirectory

from mlxspec_app.bench.terminal import Terminal

RUNS = 9
_TIMEOUT_S = 30.0


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
