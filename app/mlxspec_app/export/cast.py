"""A film of the chat for a terminal: asciicast v2, lines of JSON at the recorded times.

It is computed from the trace, not recorded from a screen, so the same trace gives the same film.
Text wraps as in the app: when a word grows past the edge, its row is written again. Each token has
its own background, so the colours are readable on a light terminal too.
Format: https://docs.asciinema.org/manual/asciicast/v2/
"""

import json
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from rich.cells import cell_len

from mlxspec_app.conversation.figures import reply_figures
from mlxspec_app.conversation.inks import INKS
from mlxspec_app.conversation.messages import Message, Reply, Span
from mlxspec_app.export.looks import LOOKS, colours, xterm
from mlxspec_app.export.recording import Recording, Written, growth, written_by_round
from mlxspec_app.text.safe_text import safe_line, safe_text
from mlxspec_app.text.wrap import Row, WrappedText

WIDTH, HEIGHT = 80, 24
RESET = "\x1b[0m"
_DARK = colours(dark=True)
MUTED = f"\x1b[38;5;{xterm(_DARK['muted'])}m"
BANDS = (xterm(_DARK["band-a"]), xterm(_DARK["band-b"]))
_PROMPT_SIGN = "\u276f "


class Frame(NamedTuple):
    """Output to the terminal and its time in seconds."""

    at: float
    text: str


def render(recording: Recording, width: int = WIDTH) -> str:
    """Return the film, `width` columns wide."""
    return film(recording.title, (width, HEIGHT), _frames(recording, width))


def film(title: str, size: tuple[int, int], frames: Iterable[Frame]) -> str:
    """Return the file of frames that are in order of time; `size` is (columns, rows)."""
    width, height = size
    header = {
        "version": 2,
        "width": width,
        "height": height,
        "title": safe_line(title),
        "env": {"TERM": "xterm-256color"},
        "theme": _theme(),
    }
    lines = [json.dumps(header)]
    lines += [json.dumps([round(at, 6), "o", text]) for at, text in frames]
    return "\n".join(lines) + "\n"


def _theme() -> dict[str, str]:
    names = ("page", "rejected", "accepted", "corrected", "bonus", "bonus", "accepted", "plain")
    palette = ":".join(_DARK[name].lower() for name in names)
    return {"fg": _DARK["text"].lower(), "bg": _DARK["page"].lower(), "palette": palette}


def _frames(recording: Recording, width: int) -> Iterator[Frame]:
    for message, times, end in growth(recording):
        if not isinstance(message, Reply):
            yield Frame(end, _user_message(message, width))
            continue
        page = Page(width)
        grown = zip(times, written_by_round(message), strict=True)
        for number, (now, written) in enumerate(grown):
            yield Frame(now, page.add(written, BANDS[number % 2]))
        yield Frame(end, _end(message, width))


def _user_message(message: Message, width: int) -> str:
    rows = _plain_rows(safe_text(message.text), width - len(_PROMPT_SIGN))
    signs = [_PROMPT_SIGN] + [" " * len(_PROMPT_SIGN)] * (len(rows) - 1)
    lines = [f"\x1b[1m{sign}{row}{RESET}" for sign, row in zip(signs, rows, strict=True)]
    return "\r\n".join([*lines, "", ""])


def _end(reply: Reply, width: int) -> str:
    parts = [part.text for part in reply_figures(reply)]
    if reply.error:
        parts.append(safe_line(reply.error))
    rows = [f"{MUTED}{row}{RESET}" for row in _plain_rows(" · ".join(parts), width)]
    return "\r\n\r\n" + "\r\n".join([*rows, "", ""])


def _plain_rows(text: str, width: int) -> list[str]:
    wrapped = WrappedText(width)
    wrapped.append(text)
    return [wrapped.row_text(row).rstrip() for row in wrapped.rows]


class Page:
    """A reply as it grows on the terminal, in rows of `width` columns."""

    def __init__(self, width: int) -> None:
        self._wrapped = WrappedText(width)
        self._looks: list[str] = []

    @property
    def num_rows(self) -> int:
        return len(self._wrapped.rows)

    def add(self, written: list[Written], band: int) -> str:
        """Return the output of new tokens: the last row again, and the rows below it."""
        first = self.num_rows - 1
        self.append(written, band)
        return "\r\x1b[K" + "\r\n".join(self.row(n) for n in range(first, self.num_rows))

    def append(self, written: list[Written], band: int) -> None:
        """Add new tokens; `band` is the xterm number of the colour behind them."""
        for _, span in written:
            self._looks.append(_sgr(span, band))
            self._wrapped.append(safe_text(span.text), len(self._looks) - 1)

    def row(self, number: int) -> str:
        row = self._wrapped.rows[number]
        text = self._wrapped.lines[row.line].text
        # Spaces may stand past the edge, where a terminal would start a new row: cut them off.
        end = row.end - self._excess(row)
        pieces = [
            self._looks[run.tag] + text[run.start : min(run.end, end)]
            for run in self._wrapped.runs(row)
            if run.start < end
        ]
        return "".join(pieces) + RESET

    def cells(self, number: int) -> int:
        row = self._wrapped.rows[number]
        return cell_len(self._wrapped.row_text(row)) - self._excess(row)

    def _excess(self, row: Row) -> int:
        return max(0, cell_len(self._wrapped.row_text(row)) - self._wrapped.width)


def _sgr(span: Span, band: int) -> str:
    look = LOOKS[INKS[0].style_of(span)]
    styles = ((1, look.bold), (3, look.italic), (4, look.underline))
    on = "".join(f"{code};" for code, is_on in styles if is_on)
    return f"\x1b[0;{on}38;5;{xterm(_DARK[look.colour])};48;5;{band}m"
