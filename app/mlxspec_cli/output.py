"""The standard streams: made usable, checked for a terminal, and written to safely."""

import io
import os
import sys
from collections.abc import Mapping
from typing import Any

from mlxspec.trace.events import DrafterFailed, GenerationFinished
from mlxspec_app.text.safe_text import safe_text


def mend_streams() -> None:
    """Open closed streams as the null device, and replace characters that cannot be encoded.

    Else the next opened file, such as the chat store, takes the place of a closed stream.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free descriptor: this stream's
    sys.stdin = sys.stdin or os.fdopen(0, encoding="utf-8")
    sys.stdout = sys.stdout or os.fdopen(1, "w", encoding="utf-8")
    sys.stderr = sys.stderr or os.fdopen(2, "w", encoding="utf-8")
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
    if isinstance(sys.stdin, io.TextIOWrapper):
        is_ascii = sys.stdin.encoding.lower() in ("ascii", "ansi_x3.4-1968", "us-ascii")
        is_utf_8 = is_ascii or sys.stdin.encoding.lower() == "utf-8"  # ASCII seldom means ASCII
        encoding = "utf-8-sig" if is_utf_8 else None  # a byte order mark is not part of a text
        sys.stdin.reconfigure(encoding=encoding, errors="surrogateescape")


def can_draw() -> bool:
    """Return whether input and output are a terminal that can draw the app."""
    is_terminal = sys.stdin.isatty() and sys.stdout.isatty()
    return is_terminal and os.environ.get("TERM") != "dumb"


def harmless(text: str) -> str:
    """Return text without control characters, except tabs."""
    return "\t".join(map(safe_text, text.split("\t")))


def for_output(text: str) -> str:
    """Return a reply for standard output: without control characters on a terminal, else exact."""
    return harmless(text) if sys.stdout.isatty() else text


def say(line: str) -> None:
    """Print a notice of mlxspec on standard error."""
    print(f"mlxspec: {harmless(line)}", file=sys.stderr, flush=True)


def tell_drafter_failure(event: DrafterFailed) -> None:
    """Print why the drafter failed, and that the reply goes on."""
    why = f"failed, so the model continues without it: {event.message}"
    say(f"the drafter {event.drafter} {why}")


def tell_end(event: GenerationFinished, drafter: str) -> None:
    """Print why a reply was stopped, and its figures, on standard error."""
    if event.reason == "repeating":
        say("stopped: repeating")
    print(summary_line(event.stats, drafter=drafter), file=sys.stderr)


def summary_line(stats: Mapping[str, Any], *, drafter: str) -> str:
    """Return the line below a reply: speed, TTFT, target forwards and acceptance."""
    parts = [
        f"{stats['generated_tokens']} tokens",
        f"{stats['generation_tps']:.1f} tokens/s",
        f"first token after {stats['ttft_s']:.2f} s",
        f"{stats['target_forwards']} target forwards",
    ]
    if stats["rounds"]:
        parts.append(f"mean acceptance length {stats['mean_acceptance_length']:.2f}")
    return f"{drafter}: {' · '.join(parts)}"
