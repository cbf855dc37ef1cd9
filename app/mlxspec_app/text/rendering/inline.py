"""Inline Markdown as pieces: marks are left out, and each character keeps its index in the source.

markdown-it parses the text, but its tokens carry no source positions. They come in source order, so
one walk over tokens and source finds the positions. Where the walk fails, the source itself is
shown, so nothing is drawn at a wrong position.

While a text grows, a construct counts from its opening mark on, as if it were closed at the end. So
its marks never appear and vanish.
"""

import re
from bisect import bisect_right
from collections.abc import Generator, Sequence
from functools import cache
from itertools import accumulate
from typing import TYPE_CHECKING

from mlxspec_app.text.rendering.pieces import Piece, Tone

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

_CODE_SPAN = re.compile(r"(?<!`)(`+)(?!`)(.*?[^`])\1(?!`)", re.DOTALL)
_MARK = re.compile(r"\\.|\*{1,3}|_{1,3}|~~", re.DOTALL)
_MARKS_AT_END = re.compile(r"(?:[*_~`]+|!?\[)$")
_OPEN_LINK = re.compile(r"\]\([^()\s]*$")
_Found = tuple[str, int, Tone]  # characters, their index in the text or -1, their tone
_TONES = {"strong": Tone.LOUD, "em": Tone.ITALIC, "s": Tone.STRIKE}


class _MisalignedError(ValueError):
    """The tokens do not follow the source."""


@cache
def parser() -> "MarkdownIt":
    """Return the parser: CommonMark with tables, without constructs that hide or merge text."""
    from markdown_it import MarkdownIt  # late: only the first reply needs it

    off = ["code", "html_block", "html_inline", "reference", "lheading", "image"]
    parser = MarkdownIt("commonmark").enable(["table", "strikethrough"]).disable(off)
    # escapes and entities must stay separate tokens, as they are shorter than their source
    parser.core.ruler.disable(["inline", "text_join"])
    return parser


def inline_lines(
    lines: Sequence[str], place: Sequence[tuple[int, int]], *, is_open: bool, tone: Tone
) -> list[list[Piece]]:
    """Return the pieces of each line of a paragraph.

    `lines` come without the marks of the blocks around them. `place` is the logical line and the
    index in it at which each starts. `is_open` says whether more text may follow.
    """
    text = "\n".join(lines)
    try:
        found = list(_walk(_completed(text) if is_open else text, tone))
    except _MisalignedError:
        found = [(text, 0, tone)]
    shown: list[list[Piece]] = [[] for _ in lines]
    starts = list(accumulate((len(line) + 1 for line in lines), initial=0))
    number = 0
    for text, index, tone in found:
        if index < 0:
            shown[number].append(Piece(text, tone=tone | Tone.SIGN))
            continue
        for part in text.split("\n"):
            number = bisect_right(starts, index) - 1
            line, column = place[number]
            if part:
                shown[number].append(Piece(part, line, column + index - starts[number], tone))
            index += len(part) + 1
    return shown


def closing_marks(text: str) -> str:
    """Return the marks that close the open constructs of a text, or ""."""
    rest = _CODE_SPAN.sub(lambda found: " " * len(found[0]), text)
    if ticks := re.search(r"`+", rest):
        return ticks[0] if rest[ticks.end() :].strip() else ""
    open_marks: list[str] = []
    for found in _MARK.finditer(rest):
        mark, before = found[0], rest[max(0, found.start() - 1) : found.start()]
        after = rest[found.end() : found.end() + 1]
        if open_marks and open_marks[-1] == mark and before.strip():
            open_marks.pop()
        elif mark[0] != "\\" and after.strip() and not (before.isalnum() and mark[0] in "_*"):
            open_marks.append(mark)
    link = ")" if _OPEN_LINK.search(rest) and "[" in rest else ""
    return link + "".join(reversed(open_marks))


def _completed(text: str) -> str:
    """Return a growing text as it would read if its open constructs were closed."""
    text = _MARKS_AT_END.sub("", text.rstrip(" ")).rstrip(" ")
    return text + closing_marks(text)


def _walk(text: str, tone: Tone) -> Generator[_Found, None, None]:
    """Yield the characters to show, in order."""
    children: list[Token] = []
    parser().inline.parse(text, parser(), {}, children)
    at, tones = 0, [tone]
    for child in children:
        while at < len(text) and text[at] == " " and child.type in ("softbreak", "hardbreak"):
            at += 1
        kind, _, end = child.type.rpartition("_")
        if child.type == "text":
            at = _expect(text, at, child.content)
            if child.content:
                yield child.content, at - len(child.content), tones[-1]
        elif child.type == "text_special":
            at = _expect(text, at, child.markup)
            yield child.content, at - len(child.markup), tones[-1]
        elif child.type in ("softbreak", "hardbreak"):
            at = _expect(text, at + (text[at : at + 1] == "\\"), "\n")
            at = _after_space(text, at)
        elif child.type == "code_inline":
            at = yield from _code(text, at, child, tones[-1] | Tone.CODE)
        elif kind == "link":
            at = yield from _link(text, at, child, tones[-1])
        elif kind in _TONES:
            at = _expect(text, at, child.markup)
            tones = [*tones, tones[-1] | _TONES[kind]] if end == "open" else tones[:-1]
        else:
            raise _MisalignedError(child.type)


def _expect(text: str, at: int, part: str) -> int:
    if not text.startswith(part, at):
        raise _MisalignedError(f"{part!r} is not at {at}")
    return at + len(part)


def _after_space(text: str, at: int) -> int:
    return at + len(text[at:]) - len(text[at:].lstrip())


def _code(text: str, at: int, token: "Token", tone: Tone) -> Generator[_Found, None, int]:
    start = _expect(text, at, token.markup)
    raw = text[start:].replace("\n", " ")
    for pad in (0, 1):
        end = start + pad + len(token.content)
        if raw.startswith(token.content, pad) and text.startswith(token.markup, end + pad):
            yield text[start + pad : end], start + pad, tone
            return end + pad + len(token.markup)
    raise _MisalignedError(token.content)


def _link(text: str, at: int, token: "Token", tone: Tone) -> Generator[_Found, None, int]:
    if token.markup == "autolink":
        return _expect(text, at, "<" if token.nesting > 0 else ">")
    if token.nesting > 0:
        return _expect(text, at, "[")
    from markdown_it.helpers import parseLinkDestination, parseLinkTitle

    start = _after_space(text, _expect(text, at, "]("))
    target = parseLinkDestination(text, start, len(text))
    end = target.pos if target.ok else start
    title = parseLinkTitle(text, _after_space(text, end), len(text))
    last = _after_space(text, title.pos if title.ok else end)
    quiet = (tone | Tone.QUIET) & ~Tone.LOUD
    if end > start:
        yield " (", -1, quiet
        yield text[start:end], start, quiet
        yield ")", -1, quiet
    return _expect(text, last, ")")
