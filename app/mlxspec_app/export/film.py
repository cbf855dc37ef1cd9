"""Films for a terminal: asciicast v2, lines of JSON at the recorded times.

A film is computed from the trace, not recorded from a screen, so the same trace gives the same
film. All text has the background of the page, so its tint is readable on a light terminal too.
Format: https://docs.asciinema.org/manual/asciicast/v2/
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from heapq import merge
from operator import itemgetter

from rich.cells import set_cell_size

from mlxspec_app.export.looks import EXPORTED, colours, xterm
from mlxspec_app.export.recording import Recording
from mlxspec_app.export.scene import Row, Scene
from mlxspec_app.text.safe_text import safe_line
from mlxspec_app.themes.looks import Look

WIDTH, HEIGHT = 80, 24
LANE, GAP = 48, 4  # columns of a lane of a race, and between two
_TOP, _ROWS = 4, 16  # the first row of a lane, from 1, and how many it has
_DARK = colours(dark=True)
_PAGE = f"48;5;{xterm(_DARK['page'])}"
_RESET, _BOLD, _CLEAR = "\x1b[0m", "\x1b[1m", "\x1b[2J"
_AGAIN = "\r\x1b[K"  # the row of the cursor, from its start


Frame = tuple[float, str]  # its time in seconds, and output to the terminal


def render(recording: Recording, width: int = WIDTH) -> str:
    """Return the film of a chat, `width` columns wide, which scrolls as a terminal does."""
    return _file(recording.title, (width, HEIGHT), _scrolling(Scene(recording, width)))


def race(title: str, lanes: Sequence[Recording], outcome: Sequence[str]) -> str:
    """Return the film of runs side by side; the lines of `outcome` appear at the end."""
    width = len(lanes) * (LANE + GAP) - GAP
    frames = [list(_lane(lane, 1 + n * (LANE + GAP))) for n, lane in enumerate(lanes)]
    head = 0.0, _CLEAR + _put(1, 1, _BOLD + _cut(title, width))
    end = max(at for lane in frames for at, _ in lane)
    muted = _sgr(EXPORTED["muted"])
    said = (_put(_TOP + _ROWS + 1 + n, 1, muted + _cut(s, width)) for n, s in enumerate(outcome))
    last = end, "".join(said) + f"\x1b[{HEIGHT};1H"
    return _file(title, (width, HEIGHT), [head, *merge(*frames, key=itemgetter(0)), last])


def _file(title: str, size: tuple[int, int], frames: Iterable[Frame]) -> str:
    """Return the file of frames that are in order of time; `size` is (columns, rows)."""
    width, height = size
    names = ("page", "rejected", "accepted", "corrected", "bonus", "bonus", "accepted", "plain")
    palette = ":".join(_DARK[name].lower() for name in names)
    header = {
        "version": 2,
        "width": width,
        "height": height,
        "title": safe_line(title),
        "env": {"TERM": "xterm-256color"},
        "theme": {"fg": _DARK["text"].lower(), "bg": _DARK["page"].lower(), "palette": palette},
    }
    lines = [json.dumps(header)]
    lines += [json.dumps([round(at, 6), "o", text]) for at, text in frames]
    return "\n".join(lines) + "\n"


def _scrolling(scene: Scene) -> Iterator[Frame]:
    """Yield the last row again and the rows below it, at each step."""
    for at, before, rows in _growing(scene):
        new = (_output(row, scene.width) for row in rows[before:])
        yield at, _AGAIN + "\r\n".join(new)
    yield scene.duration, "\r\n"


def _lane(recording: Recording, column: int) -> Iterator[Frame]:
    """Yield the rows that change in a window that follows the end of the replies of a run."""
    yield 0.0, _put(2, column, _BOLD + _cut(recording.title, LANE))
    replies = replace(recording, messages=tuple(recording.replies))
    shown = [""] * _ROWS
    for at, _, grown in _growing(Scene(replies, LANE, has_figures=False)):
        rows = [_output(row, LANE, is_full=True) for row in grown[-_ROWS:]]
        changed = (n for n, row in enumerate(rows) if row != shown[n])
        yield at, "".join(_put(_TOP + n, column, rows[n]) for n in changed)
        shown[: len(rows)] = rows


def _growing(scene: Scene) -> Iterator[tuple[float, int, list[Row]]]:
    """Yield the time of each step, the last row before it, and the rows up to its last one."""
    rows: list[Row] = [[]]
    for step in scene.steps:
        before = len(rows) - 1
        rows += [[] for _ in range(len(rows), max(step.rows, default=0) + 1)]
        for number, pieces in step.rows.items():
            rows[number] += pieces
        yield step.at, before, rows


def _output(row: Row, width: int, *, is_full: bool = False) -> str:
    """Return a row as output, up to the edge: spaces may stand past it."""
    text = ""
    for piece in row:
        if piece.column < width:
            is_cut = piece.end > width
            shown = set_cell_size(piece.text, width - piece.column) if is_cut else piece.text
            text += _sgr(EXPORTED[piece.look]) + shown
    rest = width - row[-1].end if row else width
    return text + _RESET + " " * rest * is_full


def _sgr(look: Look) -> str:
    bold = "1;" * look.bold
    return f"\x1b[0;{bold}38;5;{xterm(_DARK[look.colour])};{_PAGE}m"


def _put(row: int, column: int, text: str) -> str:
    return f"\x1b[{row};{column}H{text}{_RESET}"


def _cut(text: str, width: int) -> str:
    return set_cell_size(safe_line(text), width).rstrip(" ")
