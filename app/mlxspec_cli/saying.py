"""What is printed, made harmless: a model, or a file that it came in, can hold escape sequences."""

import sys

from mlxspec_app.text.safe_text import safe_text


def harmless(text: str) -> str:
    """Return text that does nothing to a terminal but to appear on it; tabs stay."""
    return "\t".join(map(safe_text, text.split("\t")))


def for_output(text: str) -> str:
    """Return a reply as standard output takes it: harmless on a terminal, else the very text."""
    return harmless(text) if sys.stdout.isatty() else text


def say(line: str) -> None:
    """Print a line of mlxspec's own on standard error."""
    print(f"mlxspec: {harmless(line)}", file=sys.stderr, flush=True)
