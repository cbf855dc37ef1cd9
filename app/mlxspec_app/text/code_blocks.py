"""Fenced code blocks in Markdown: their code, and the fence that a text leaves open."""

import re
from collections.abc import Iterator
from typing import NamedTuple

_FENCE = re.compile(r"^ {0,3}(?P<marks>`{3,}|~{3,})(?P<rest>.*)$", re.MULTILINE)


class CodeBlock(NamedTuple):
    """A fenced code block, from `start` to `end` of the text, its fences included.

    `marks` are those of the opening fence. An open block ends with the text.
    """

    marks: str
    code: str
    start: int
    end: int
    is_closed: bool


def code_blocks(text: str) -> list[str]:
    """Return the code of all blocks, in order; the last block may be open."""
    return [block.code for block in find_blocks(text)]


def code_block_at(text: str, index: int) -> str:
    """Return the code of the block around a character, else of the last block, else ""."""
    blocks = list(find_blocks(text))
    around = [block.code for block in blocks if block.start <= index < block.end]
    return (around or [block.code for block in blocks] or [""])[-1]


def find_blocks(text: str) -> Iterator[CodeBlock]:
    """Yield the blocks that are not empty, in order."""
    return (block for block in _blocks(text) if block.code.strip())


def open_fence(text: str) -> str:
    """Return the fence that the text leaves open, such as three backticks, or ""."""
    return next((block.marks for block in _blocks(text) if not block.is_closed), "")


def closed(text: str) -> str:
    """Return the text with its last fence closed, so that the next text is not part of the code."""
    fence = open_fence(text)
    return f"{text}\n{fence}" if fence else text


def fence_after(line: str, fence: str) -> str:
    """Return the fence that is open after a line, "" for none; `fence` is open before the line."""
    found = _FENCE.match(line)
    if found is None:
        return fence
    marks, rest = found["marks"], found["rest"]
    if fence:
        return "" if marks.startswith(fence) and not rest.strip() else fence
    # CommonMark: with another backtick in the line it is inline code, not a fence
    return "" if marks[0] == "`" and "`" in rest else marks


def _blocks(text: str) -> Iterator[CodeBlock]:
    opening: re.Match[str] | None = None
    marks = ""
    for fence in _FENCE.finditer(text):
        after = fence_after(fence[0], marks)
        if opening is None and after:
            opening = fence
        elif opening is not None and not after:
            code = text[opening.end() + 1 : fence.start()]
            yield CodeBlock(marks, code, opening.start(), fence.end(), True)
            opening = None
        marks = after
    if opening is not None:
        yield CodeBlock(marks, text[opening.end() + 1 :], opening.start(), len(text), False)
