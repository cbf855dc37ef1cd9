"""Text in logical lines, made of tagged pieces that are added and removed only at the end."""

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from rich.cells import split_graphemes


class Place(NamedTuple):
    """A logical line, and the index of a character in it."""

    line: int
    character: int


class Run(NamedTuple):
    """Adjacent characters of a line with the same tag."""

    start: int
    end: int
    tag: int


@dataclass
class Line:
    """A logical line without its line break; `ends` and `tags` hold each piece's end and tag."""

    text: str = ""
    ends: list[int] = field(default_factory=list)
    tags: list[int] = field(default_factory=list)

    def append(self, text: str, tag: int) -> None:
        if not text:
            return
        self.text += text
        self.ends.append(len(self.text))
        self.tags.append(tag)

    def cut(self, end: int) -> None:
        """Drop the characters after the first `end`, which must be the end of a piece."""
        num_pieces = bisect_right(self.ends, end)
        del self.ends[num_pieces:], self.tags[num_pieces:]
        self.text = self.text[:end]

    def tag_at(self, index: int) -> int:
        return self.tags[bisect_right(self.ends, index)]

    def runs(self, start: int, end: int) -> list[Run]:
        """Return the runs of equal tags between two characters.

        They start and end between grapheme clusters. A cluster that two pieces share has the tag of
        the later one.
        """
        runs: list[Run] = []
        for first, last in self._parts(start, end):
            tag = self.tag_at(last - 1)
            if runs and runs[-1].tag == tag:
                runs[-1] = Run(runs[-1].start, last, tag)
            else:
                runs.append(Run(first, last, tag))
        return runs

    def _parts(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        text = self.text[start:end]
        if not text.isascii():
            for first, last, _ in split_graphemes(text)[0]:
                yield start + first, start + last
            return
        piece = bisect_right(self.ends, start)
        while start < end:
            last = min(self.ends[piece], end)
            yield start, last
            start, piece = last, piece + 1


class TaggedLines:
    """Logical lines of text, at least one; the last one grows."""

    def __init__(self) -> None:
        self.lines = [Line()]
        self._ends: list[Place] = []

    def append(self, text: str) -> None:
        """Add a piece; its tag is the number of pieces before it."""
        tag = len(self._ends)
        head, *rest = text.split("\n")
        self.lines[-1].append(head, tag)
        for part in rest:
            self.lines.append(Line())
            self.lines[-1].append(part, tag)
        self._ends.append(Place(len(self.lines) - 1, len(self.lines[-1].text)))

    def cut(self, num_pieces: int) -> Place:
        """Drop all but the first pieces and return the end of the rest."""
        line, end = self.start_of(num_pieces)
        del self._ends[num_pieces:], self.lines[line + 1 :]
        self.lines[line].cut(end)
        return Place(line, end)

    def start_of(self, piece: int) -> Place:
        """Return where a piece starts; for the next new piece, this is the end of the text."""
        return self._ends[piece - 1] if piece else Place(0, 0)
