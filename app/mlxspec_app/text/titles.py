"""The title of a chat that nobody named: the beginning of its first message."""

TITLE_CHARACTERS = 60


def title_of(text: str) -> str:
    """Return the beginning of the first line that holds text; "" if there is none."""
    line = next((" ".join(line.split()) for line in text.splitlines() if line.strip()), "")
    return line if len(line) <= TITLE_CHARACTERS else line[: TITLE_CHARACTERS - 1].rstrip() + "…"
