"""Fenced blocks of code in Markdown: to be copied without their fences, or closed when cut off."""

import re
from collections.abc import Iterator
from typing import NamedTuple

_FENCE = re.compile(r"^ {0,3}(?P<marks>`{3,}|~{3,})(?P<rest>.*)$", re.MULTILINE)


class _Block(NamedTuple):
    """What stands between fences: the marks of the first one, the code, whether it is closed."""

    marks: str
    code: str
    is_closed: bool


def code_blocks(text: str) -> list[str]:
    """Return what stands between fences, in order; a last block need not be closed."""
    return [block.code for block in _blocks(text) if block.code.strip()]


def open_fence(text: str) -> str:
    """Return the fence that the text leaves open, such as three backticks, or ""."""
    return next((block.marks for block in _blocks(text) if not block.is_closed), "")


def closed(text: str) -> str:
    """Return the text with its last fence closed, so that it cannot swallow what follows."""
    fence = open_fence(text)
    return f"{text}\n{fence}" if fence else text


def _blocks(text: str) -> Iterator[_Block]:
    opening: re.Match[str] | None = None
    for fence in _FENCE.finditer(text):
        marks, rest = fence["marks"], fence["rest"]
        if opening is None:
            # a backtick after an opening backtick fence makes the line inline code
            opening = None if marks[0] == "`" and "`" in rest else fence
        elif marks.startswith(opening["marks"]) and not rest.strip():
            yield _Block(opening["marks"], text[opening.end() + 1 : fence.start()], True)
            opening = None
    if opening is not None:
        yield _Block(opening["marks"], text[opening.end() + 1 :], False)
