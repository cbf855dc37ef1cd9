"""The streams of a command: made usable, told from a terminal, and written to without harm.

The number of a stream that was closed goes to the next file that is opened: what anything prints
would then be written into that file, the store of chats for one. A stream may have an encoding
that lacks characters of a reply, or that what is typed does not keep to: neither ends a chat. And
a model, or a file that it came in, can hold escape sequences.
"""

import io
import os
import sys
from collections.abc import Mapping
from typing import Any

from mlxspec_app.text.safe_text import safe_text


def mend_streams() -> None:
    """Open what is closed as the null device, and let no character be an error."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number, which is this one
    sys.stdin = sys.stdin or os.fdopen(0, encoding="utf-8")
    sys.stdout = sys.stdout or os.fdopen(1, "w", encoding="utf-8")
    sys.stderr = sys.stderr or os.fdopen(2, "w", encoding="utf-8")
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
    if isinstance(sys.stdin, io.TextIOWrapper):
        is_ascii = sys.stdin.encoding.lower() in ("ascii", "ansi_x3.4-1968", "us-ascii")
        encoding = "utf-8" if is_ascii else None  # what is typed there is most likely that
        sys.stdin.reconfigure(encoding=encoding, errors="surrogateescape")


def can_draw() -> bool:
    """Return whether an app can be drawn here: both ends a terminal, and not a dumb one."""
    is_terminal = sys.stdin.isatty() and sys.stdout.isatty()
    return is_terminal and os.environ.get("TERM") != "dumb"


def harmless(text: str) -> str:
    """Return text that does nothing to a terminal but to appear on it; tabs stay."""
    return "\t".join(map(safe_text, text.split("\t")))


def for_output(text: str) -> str:
    """Return a reply as standard output takes it: harmless on a terminal, else the very text."""
    return harmless(text) if sys.stdout.isatty() else text


def say(line: str) -> None:
    """Print a line of mlxspec's own on standard error."""
    print(f"mlxspec: {harmless(line)}", file=sys.stderr, flush=True)


def summary_line(stats: Mapping[str, Any], *, drafter: str) -> str:
    """Return speed, first token, forwards and acceptance of a reply, as the line under it."""
    parts = [
        f"{stats['generated_tokens']} tokens",
        f"{stats['generation_tps']:.1f} tok/s",
        f"first token after {stats['ttft_s']:.2f} s",
        f"{stats['target_forwards']} target forwards",
    ]
    if stats["rounds"]:
        parts.append(f"mean acceptance length {stats['mean_acceptance_length']:.2f}")
    return f"{drafter}: {' · '.join(parts)}"
