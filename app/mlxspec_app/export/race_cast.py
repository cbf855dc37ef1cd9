"""A race as a film for a terminal: both lanes side by side at their recorded times.

Each lane is a window on its own text that follows the end. Only rows that change are written, each
at its own coordinates, so both can grow at once.
"""

from collections.abc import Iterator, Sequence
from heapq import merge
from operator import attrgetter

from rich.cells import set_cell_size

from mlxspec_app.conversation.messages import Reply
from mlxspec_app.export.cast import BANDS, MUTED, RESET, Frame, Page, film
from mlxspec_app.export.recording import Recording, growth, written_by_round
from mlxspec_app.text.safe_text import safe_line

LANE, GAP, HEIGHT = 48, 4, 24
_TOP, _ROWS = 4, 16  # the first row of a lane, from 1, and how many it has


def render(title: str, lanes: Sequence[Recording], outcome: Sequence[str]) -> str:
    """Return the film of both runs, with the prompt of the race as `title`.

    The title of each run is the name of its lane. `outcome` are lines that appear when both are
    over.
    """
    width = len(lanes) * (LANE + GAP) - GAP
    frames = [list(_lane(lane, 1 + n * (LANE + GAP))) for n, lane in enumerate(lanes)]
    head = Frame(0.0, "\x1b[2J" + _put(1, 1, f"\x1b[1m{_cut(title, width)}"))
    end = max(frame.at for lane in frames for frame in lane)
    said = (_put(_TOP + _ROWS + 1 + n, 1, MUTED + _cut(s, width)) for n, s in enumerate(outcome))
    last = Frame(end, "".join(said) + f"\x1b[{HEIGHT};1H")
    return film(title, (width, HEIGHT), [head, *merge(*frames, key=attrgetter("at")), last])


def _lane(recording: Recording, column: int) -> Iterator[Frame]:
    name = _put(2, column, f"\x1b[1m{_cut(recording.title, LANE)}")
    yield Frame(0.0, name)
    page, shown = Page(LANE), [""] * _ROWS
    for message, times, _ in growth(recording):
        if not isinstance(message, Reply):
            continue
        for number, (at, written) in enumerate(zip(times, written_by_round(message), strict=True)):
            page.append(written, BANDS[number % len(BANDS)])
            rows = list(_window(page))
            changed = (n for n, row in enumerate(rows) if row != shown[n])
            yield Frame(at, "".join(_put(_TOP + n, column, rows[n]) for n in changed))
            shown[: len(rows)] = rows


def _window(page: Page) -> Iterator[str]:
    """Yield the last rows of a text, each as wide as a lane."""
    for number in range(max(0, page.num_rows - _ROWS), page.num_rows):
        yield page.row(number) + " " * (LANE - page.cells(number))


def _put(row: int, column: int, text: str) -> str:
    return f"\x1b[{row};{column}H{text}{RESET}"


def _cut(text: str, width: int) -> str:
    return set_cell_size(safe_line(text), width).rstrip(" ")
