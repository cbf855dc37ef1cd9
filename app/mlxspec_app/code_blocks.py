"""Fenced blocks of code in a reply, to be copied without their fences."""

import re

_FENCE = re.compile(r"^ {0,3}(?P<marks>`{3,}|~{3,})[^\n`]*$", re.MULTILINE)


def code_blocks(text: str) -> list[str]:
    """Return what stands between fences, in order; a last block need not be closed."""
    blocks = []
    opening: re.Match[str] | None = None
    for fence in _FENCE.finditer(text):
        if opening is None:
            opening = fence
        elif _closes(fence, opening["marks"]):
            blocks.append(text[opening.end() + 1 : fence.start()])
            opening = None
    if opening is not None:
        blocks.append(text[opening.end() + 1 :])
    return [block for block in blocks if block.strip()]


def _closes(fence: re.Match[str], marks: str) -> bool:
    return fence.group().strip(" " + marks[0]) == "" and fence["marks"].startswith(marks)
