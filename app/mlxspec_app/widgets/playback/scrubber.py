"""The scrubber: a whole recording in one strip, with a mark at the present position.

In the line above the strip, the heavy part has been played, and a notch marks the start of a reply.
A click or a drag moves to another position.
"""

from dataclasses import dataclass
from fractions import Fraction
from itertools import groupby

from textual import events
from textual.content import Content
from textual.message import Message
from textual.widget import Widget

from mlxspec_app.playback.strip import Cell, cell_of, cells
from mlxspec_app.playback.timeline import Timeline

_LEVELS = ("$spec-accepted 65%", "$spec-accepted 80%", "$spec-accepted")


class Scrubber(Widget):
    """Two rows: the line with the position, and the accepted lengths."""

    DEFAULT_CSS = """
    Scrubber { height: 2; padding: 0 1; text-wrap: nowrap; }
    """
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
        starts = [index for index in range(len(timeline.rounds)) if self._opens(index)]
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

    def _opens(self, index: int) -> bool:
        rounds = self._timeline.rounds
        return index > 0 and rounds[index].reply != rounds[index - 1].reply

    def _strip(self) -> Content:
        runs = groupby(self._cells, key=_style)
        return Content.assemble(
            *(("".join(cell.sign for cell in run), style) for style, run in runs)
        )


def _style(cell: Cell) -> str:
    if cell.kind == "rejected":
        return "$spec-rejected"
    return _LEVELS[min(2, int(cell.share * 3))]
