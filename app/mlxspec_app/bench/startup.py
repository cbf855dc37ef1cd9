"""The time of a command to its first painted frame: `python -m mlxspec_app.bench.startup`.

Each run is a new process on its own terminal, which is killed after its first frame: the time
excludes everything later, such as loading a model. Processor time shows how much a busy machine
added. The arguments are those of mlxspec; the default is a chat with its store in a temporary
folder. The last line is one JSON document.
"""

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from tempfile import TemporaryDirectory

from mlxspec_app.bench.terminal import Terminal

RUNS = 9
_TIMEOUT_S = 30.0


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
    terminal = Terminal(["mlxspec", *arguments], {})
    try:
        terminal.wait_for_frame(_TIMEOUT_S)
    finally:
        terminal.end(0)
    return Start(terminal.first_frame_s, terminal.processor_s)


def starts(arguments: Sequence[str]) -> list[Start]:
    """Return several starts, the fastest first; a first run loads files into the page cache."""
    start(arguments)
    return sorted((start(arguments) for _ in range(RUNS)), key=lambda one: one.first_frame_s)


def median_start() -> Start:
    """Return the median start of a chat with a store of its own."""
    with TemporaryDirectory() as folder:
        return starts(["chat", "--data-dir", folder])[RUNS // 2]


def main(arguments: Sequence[str]) -> None:
    """Print median, best and worst of several starts."""
    found = starts(arguments)
    figures = {
        "runs": RUNS,
        "median_s": median(one.first_frame_s for one in found),
        "best_s": found[0].first_frame_s,
        "worst_s": found[-1].first_frame_s,
        "processor_s": median(one.processor_s for one in found),
    }
    print(
        f"mlxspec {arguments[0]}: first frame after {figures['median_s']:.3f} s (median of {RUNS}; "
        f"{figures['best_s']:.3f} to {figures['worst_s']:.3f}); processor "
        f"{figures['processor_s']:.3f} s"
    )
    print(json.dumps(figures))


if __name__ == "__main__":
    with TemporaryDirectory() as folder:
        main(sys.argv[1:] or ["chat", "--data-dir", folder])
