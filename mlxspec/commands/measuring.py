"""What the commands that take long share: lists in arguments, and lines beside the output."""

import sys


def words_of(text: str) -> list[str]:
    """Return the words of a list with commas between; empty ones are passed over."""
    return [word.strip() for word in text.split(",") if word.strip()]


def say(line: str) -> None:
    """Print a line on standard error, at once."""
    print(f"mlxspec: {line}", file=sys.stderr, flush=True)
