"""Links of Markdown in one line of a text."""

import re

_LINK = re.compile(
    r"\[[^\[\]]*\]\(\s*<?(?P<target>[^()\s<>]+)>?[^()]*\)|<(?P<auto>[a-z]+:[^\s<>]+)>"
)


def link_at(line: str, index: int) -> str:
    """Return the target of the link around a character of a line, or ""."""
    for found in _LINK.finditer(line):
        if found.start() <= index < found.end():
            return found["target"] or found["auto"]
    return ""
