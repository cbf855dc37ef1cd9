"""What Markdown a text holds: its fenced code blocks, the fence that it leaves open, its links."""

import re
from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from markdown_it import MarkdownIt

_LINK = re.compile(
    r"\[[^\[\]]*\]\(\s*<?(?P<target>[^()\s<>]+)>?[^()]*\)|<(?P<auto>[a-z]+:[^\s<>]+)>"
)


class _CodeBlock(NamedTuple):
    """The code of a block from `start` to `end` of the text, its fences included.

    `open_fence` is the fence, such as three backticks, if the block has no end.
    """

    code: str
    start: int
    end: int
    open_fence: str


def link_at(line: str, index: int) -> str:
    """Return the target of the link around a character of a line, or ""."""
    for found in _LINK.finditer(line):
        if found.start() <= index < found.end():
            return found["target"] or found["auto"]
    return ""


def code_blocks(text: str) -> list[str]:
    """Return the code of all blocks that are not empty, in order; the last one may be open."""
    return [block.code for block in _blocks(text) if block.code]


def code_block_at(text: str, index: int) -> str:
    """Return the code of the block around a character, else of the last block, else ""."""
    blocks = [block for block in _blocks(text) if block.code]
    around = [block for block in blocks if block.start <= index < block.end]
    return (around or blocks)[-1].code if blocks else ""


def closed(text: str) -> str:
    """Return the text with its last fence closed, so that the next text is not part of the code."""
    fence = next((block.open_fence for block in _blocks(text) if block.open_fence), "")
    return f"{text}\n{fence}" if fence else text


@cache
def _parser() -> "MarkdownIt":
    from markdown_it import MarkdownIt  # late: only a copy or an export needs it

    parser = MarkdownIt("commonmark")
    parser.core.ruler.disable("inline")
    return parser


def _blocks(text: str) -> Iterator[_CodeBlock]:
    lines = re.split(r"(?<=\n)|(?<=\r)(?!\n)", text)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    for token in _parser().parse(text):
        if token.type == "fence" and token.map:
            first, after = token.map
            last = lines[after - 1].strip()
            is_closed = after - first > 1 and last.startswith(token.markup) and len(set(last)) == 1
            is_open = not is_closed and token.level == 0  # a list or a quote ends its blocks
            code = token.content if token.content.strip() else ""
            if not is_closed and not text.endswith("\n"):
                code = code.removesuffix("\n")
            yield _CodeBlock(code, starts[first], starts[after], token.markup if is_open else "")
