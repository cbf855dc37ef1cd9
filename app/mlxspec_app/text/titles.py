"""The default title of a chat: the start of its first message."""

TITLE_CHARACTERS = 60


def title_of(text: str) -> str:
    """Return the start of the first line that has text, or ""."""
    line = next((" ".join(line.split()) for line in text.splitlines() if line.strip()), "")
    return line if len(line) <= TITLE_CHARACTERS else line[: TITLE_CHARACTERS - 1].rstrip() + "…"
