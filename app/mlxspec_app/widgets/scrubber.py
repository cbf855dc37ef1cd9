"""The scrubber: a whole recording in one strip, with a mark at the present position.

The height of a cell is the square root of the mean accepted length of its rounds, because a few
long rounds would flatten all others; a plain round leaves a gap. In the line above, the heavy part
has been played, and a notch marks the start of a reply.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import groupby, pairwise
from operator import itemgetter

from textual import events
from textual.content import Content
from textual.message import Message
from textual.widget import Widget

from mlxspec_app.playback.timeline import RoundMark, Timeline

_BLOCKS = "▂▃▄▅▆▇█"
_LEVELS = ("$spec-accepted 65%", "$spec-accepted 80%", "$spec-accepted")


Cell = tuple[str, str]  # a sign and its style


class Scrubber(Widget):
    """Two rows: the line with the position, and the accepted lengths."""

    ALLOW_SELECT = False

    @dataclass
    class Picked(Message):
        """The user chose a position, as a share of the recording."""

        share: Fraction

    def __init__(self, timeline: Timeline) -> None:
        super().__init__()
        self._timeline = timeline
        self._position = 0
        self._cells: list[Cell] = []
        self._dragging = False

    def show(self, position: int) -> None:
        if position != self._position:
            self._position = position
            self.refresh()

    def render(self) -> Content:
        width = max(1, self.size.width)
        if len(self._cells) != width:
            self._cells = cells(self._timeline.rounds, width)
        return Content("\n").join([self._line(width), self._strip()])

    def on_mouse_down(self, event: events.MouseDown) -> None:
        self._dragging = True
        self.capture_mouse()
        self._pick(event)

    def on_mouse_move(self, event: events.MouseMove) -> None:
        if self._dragging:
            self._pick(event)

    def on_mouse_up(self) -> None:
        self._dragging = False
        self.release_mouse()

    def _pick(self, event: events.MouseEvent) -> None:
        width = max(1, self.size.width)
        x = min(width - 1, max(0, int(event.x) - self.gutter.left))
        self.post_message(self.Picked(Fraction(x, width)))

    def _line(self, width: int) -> Content:
        timeline = self._timeline
        pairs = enumerate(pairwise(timeline.rounds), 1)
        starts = [index for index, (before, mark) in pairs if mark.reply != before.reply]
        notches = {index * width // len(timeline.rounds) for index in starts}
        done = timeline.rounds_done(self._position)
        here = cell_of(done, len(timeline.rounds), width)
        if self._position >= len(timeline):
            here = width - 1
        signs = [
            ("┳" if x < here else "┬") if x in notches else "━─"[x > here] for x in range(width)
        ]
        return Content.assemble(
            ("".join(signs[:here]), "$spec-muted"),
            ("▼", "$foreground bold"),
            ("".join(signs[here + 1 :]), "$spec-line"),
        )

    def _strip(self) -> Content:
        runs = groupby(self._cells, key=itemgetter(1))
        return Content.assemble(*(("".join(sign for sign, _ in run), style) for style, run in runs))


def cells(rounds: Sequence[RoundMark], width: int) -> list[Cell]:
    """Return the strip of a recording, `width` cells wide; empty without a round."""
    longest = max((mark.accepted or 0 for mark in rounds), default=0)
    return [_cell(rounds_at(rounds, x, width), longest) for x in range(width if rounds else 0)]


def rounds_at(rounds: Sequence[RoundMark], x: int, width: int) -> Sequence[RoundMark]:
    """Return the rounds that a cell covers, at least one."""
    start = x * len(rounds) // width
    return rounds[start : max(start + 1, (x + 1) * len(rounds) // width)]


def cell_of(rounds_done: int, num_rounds: int, width: int) -> int:
    """Return the cell of the last committed round; the first cell before any round."""
    if not num_rounds:
        return 0
    last = max(0, rounds_done - 1)
    return min(width - 1, ((last + 1) * width - 1) // num_rounds)


def _cell(rounds: Sequence[RoundMark], longest: int) -> Cell:
    lengths = [mark.accepted for mark in rounds if mark.accepted is not None]
    if not lengths:
        return " ", _LEVELS[0]
    share = math.sqrt(sum(lengths) / len(lengths) / longest) if longest else 0.0
    if not share:
        return "▁", "$spec-muted"
    return _BLOCKS[min(6, int(share * 7))], _LEVELS[min(2, int(share * 3))]
