"""An animated SVG: the coloured conversation appears at the recorded speed.

The tokens of a round appear together, when the target has verified them. Until then one branch of
the draft is shown in grey; rejected draft tokens appear below in red and fade. A long conversation
scrolls, as on a terminal. The figures below it are those of the time that is shown.

All motion is CSS keyframes as long as the recording and a pause, so that everything restarts
together. There is no script: it also plays as an image in a page. Without keyframes the file shows
the last moment, for readers who prefer reduced motion.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple

from rich.cells import set_cell_size

from mlxspec.trace.events import DraftVerified
from mlxspec_app.conversation.figures import Part, fitting, reply_figures
from mlxspec_app.conversation.messages import Reply
from mlxspec_app.conversation.rounds import Round, children_by_parent, positions
from mlxspec_app.export.picture import (
    ASCENT,
    HEAD,
    MARGIN,
    ROW,
    WIDTH,
    Piece,
    Row,
    document,
    legend_rows,
    page_width,
    reply_rows,
    schemes,
    shapes,
    user_rows,
)
from mlxspec_app.export.recording import Recording, first_number, growth, has_kept
from mlxspec_app.text.safe_text import safe_line

HEIGHT = 20  # rows of the window
PAUSE_S = 4.0  # at the end, before it restarts
_FALL_S = 0.5  # until a rejected token has faded
_FIGURES_S = 0.2  # between two lines of figures: nobody reads faster
_COLUMN = 15  # cells of a figure, so that none moves when another gets longer
_LEAST_TELLING = 3  # figures of a larger rank are left out
FALLEN_ROWS = 2  # rows for rejected tokens below the row of the round
AT_REST = (".ghost{visibility:hidden}", ".fallen{opacity:0;text-decoration:line-through}")
_HIDDEN, _SEEN = "visibility:hidden", "visibility:visible"


class _Spot(NamedTuple):
    """Coordinates of a cell of the conversation."""

    row: int
    column: int


@dataclass
class Animation:
    """Collects shapes and their keyframes.

    Attributes:
        width: Cells of a row.
        length: Seconds until the animation restarts.
        text: Shapes that appear and stay.
        drafts: Shapes that are visible until the verdict; drawn below `text`.
        fallen: Shapes that fade; drawn below both.
        scrolled: (seconds, number of rows that have left the window by then).
        figures: (seconds, line of figures from then on).
        prefix: Start of the names of the keyframes; each animation in a file needs its own.
    """

    width: int
    length: float
    text: list[str] = field(default_factory=list)
    drafts: list[str] = field(default_factory=list)
    fallen: list[str] = field(default_factory=list)
    scrolled: list[tuple[float, int]] = field(default_factory=lambda: [(0.0, 0)])
    figures: list[tuple[float, str]] = field(default_factory=list)
    rules: list[str] = field(default_factory=list)
    prefix: str = "k"

    def write(self, at: float, rows: dict[int, Row]) -> None:
        """Make the pieces of some rows appear at a time, and scroll to the last row."""
        self.text.append(self._shown(_draw(rows), at))
        gone = max(rows) + 1 + FALLEN_ROWS - HEIGHT
        if gone > self.scrolled[-1][1]:
            self.scrolled.append((at, gone))

    def flash(self, start: float, end: float, row: int, draft: Piece) -> None:
        """Make a draft visible between two times."""
        self.drafts.append(self._shown(_draw({row: [draft]}), start, end))

    def fade(self, at: float, rows: dict[int, Row]) -> None:
        """Make pieces appear at a time and then fade."""
        begin = "opacity:1;animation-timing-function:linear"
        name = self._keyframes(((0.0, "opacity:0"), (at, begin), (at + _FALL_S, "opacity:0")))
        self.fallen.append(f'<g class="fallen" style="animation-name:{name}">{_draw(rows)}</g>')

    def note(self, at: float, figures: Sequence[Part]) -> None:
        """Show figures from a time on."""
        ranked = [part for part in figures if part.rank <= _LEAST_TELLING]
        parts = [Part(f"{part.text:<{_COLUMN}}", part.rank) for part in ranked]
        line = "".join(part.text for part in fitting(parts, self.width, gap=0))
        self.figures.append((at, set_cell_size(line, self.width)))

    def conversation(self) -> str:
        """Return the group that scrolls."""
        moves = [(at, f"transform:translateY({-rows * ROW}px)") for at, rows in self.scrolled]
        return (
            f'<g transform="translate(0 {-self.scrolled[-1][1] * ROW})" '
            f'style="animation-name:{self._keyframes(moves)}">\n'
            + "\n".join([*self.fallen, *self.drafts, *self.text])
            + "\n</g>"
        )

    def figure_lines(self, top: int) -> Iterator[str]:
        """Yield the lines of figures; one is visible at a time."""
        ends = [at for at, _ in self.figures[1:]]
        for (at, line), end in zip(self.figures, [*ends, None], strict=True):
            yield self._shown("".join(shapes([Piece(0, line, "muted")], top)), at, end)

    def motion(self) -> str:
        """Return the keyframes and the rule that plays them."""
        return "".join(self.rules) + self.playing()

    def playing(self) -> str:
        """Return the rule that plays all keyframes of a file."""
        playing = f"g{{animation:{self.length:.3f}s step-end infinite}}"
        return f"\n@media (prefers-reduced-motion:no-preference){{{playing}}}"

    def _shown(self, drawn: str, start: float, end: float | None = None) -> str:
        if end is None:
            name = self._keyframes(((0.0, _HIDDEN), (start, _SEEN)))
            return f'<g style="animation-name:{name}">{drawn}</g>'
        name = self._keyframes(((0.0, _HIDDEN), (start, _SEEN), (end, _HIDDEN)))
        return f'<g class="ghost" style="animation-name:{name}">{drawn}</g>'

    def _keyframes(self, frames: Sequence[tuple[float, str]]) -> str:
        name = f"{self.prefix}{len(self.rules)}"
        steps = "".join(f"{self._share(at)}{{{looks}}}" for at, looks in frames)
        self.rules.append(f"@keyframes {name}{{{steps}}}")
        return name

    def _share(self, at: float) -> str:
        return f"{100 * min(1.0, at / self.length):.4f}%"


def render(recording: Recording, width: int = WIDTH) -> str:
    """Return the conversation as SVG that plays by itself, `width` cells wide."""
    shown = Animation(width, last_moment(recording) + PAUSE_S)
    top = film(shown, recording)
    num_rows = min(HEIGHT, top - 1 + FALLEN_ROWS)
    return _page(shown, _title(recording, width), num_rows, has_branch=has_kept(recording))


def last_moment(recording: Recording) -> float:
    """Return the length of the recording in seconds."""
    return max(end for _, _, end in growth(recording))


def film(shown: Animation, recording: Recording) -> int:
    """Add a whole recording to an animation; return its number of rows."""
    width, top = shown.width, 0
    for message, times, end in growth(recording):
        if isinstance(message, Reply):
            rows = reply_rows(message, width)
            _play(shown, message, times, dict(enumerate(rows, top)))
            shown.note(end, reply_figures(message))
        else:
            rows = user_rows(message, width)
            shown.write(end, dict(enumerate(rows, top)))
        top += len(rows) + 1
    return top


def _title(recording: Recording, width: int) -> str:
    started = recording.replies[0].started
    names = [started.target, started.drafter] if started is not None else []
    title = safe_line(" · ".join([recording.title, *names]))
    return set_cell_size(title, width).rstrip(" ")


def _page(shown: Animation, title: str, num_rows: int, *, has_branch: bool) -> str:
    top = MARGIN + HEAD - ASCENT
    wide, bottom = page_width(shown.width), top + num_rows * ROW
    legend = legend_rows(shown.width, has_kept=has_branch)
    lines = bottom + MARGIN + ASCENT
    body = [
        # a nested <svg> clips the rows that have scrolled out
        f'<svg y="{top}" width="{wide}" height="{num_rows * ROW}">\n{shown.conversation()}\n</svg>',
        f'<path class="edge" d="M{MARGIN} {bottom + 10}H{wide - MARGIN}"/>',
        *shown.figure_lines(lines),
        *(shape for n, row in enumerate(legend, 1) for shape in shapes(row, lines + n * ROW + 4)),
    ]
    high = lines + len(legend) * ROW + MARGIN
    style = [*AT_REST, *schemes(paint), shown.motion()]
    return document(title, (wide, high), style, body)


def paint(tint: dict[str, str]) -> list[str]:
    """Return the rules of drafts in the colours of a theme."""
    return [f".{name}{{fill:{tint[name]}}}" for name in ("pending", "rejected")]


def _play(shown: Animation, reply: Reply, times: Sequence[float], rows: dict[int, Row]) -> None:
    """Add a reply round by round."""
    by_round = _by_round(rows)
    for number, at in enumerate(times, first_number(reply)):
        if (written := by_round.get(number)) is None:  # no text of its own
            continue
        shown.write(at, written)
        if 0 < number <= len(reply.rounds):
            _draft(shown, reply.rounds[number - 1], at, written)
    for at, figures in _figures(reply, times):
        shown.note(at, figures)


def _by_round(rows: dict[int, Row]) -> dict[int, dict[int, Row]]:
    found: dict[int, dict[int, Row]] = {}
    for number, row in rows.items():
        for piece in row:
            found.setdefault(piece.round, {}).setdefault(number, []).append(piece)
    return found


def _draft(shown: Animation, round_: Round, at: float, written: dict[int, Row]) -> None:
    """Add the draft of a round at the position of its text, and its rejected tokens below."""
    words = [(row, word) for row, pieces in written.items() for word in _words(pieces)]
    if round_.draft is None or not words:
        return
    row, first = words[0]
    branch = set_cell_size(safe_line(_branch(round_)).strip(" "), shown.width - first.column)
    start = max(0.0, at - max(0.0, round_.verdict.ts - round_.draft.ts))
    shown.flash(start, at, row, Piece(first.column, branch.rstrip(" "), "pending", first.round))
    spots = {word.token_index: _Spot(row, word.column) for row, word in reversed(words)}
    fallen = _fallen(round_, spots, shown.width)
    if fallen:
        shown.fade(at, fallen)


def _words(row: Row) -> Iterator[Piece]:
    return (word for piece in row if (word := piece.word) is not None)


def _branch(round_: Round) -> str:
    """Return the text of the accepted path and of the most probable nodes below it."""
    children = children_by_parent(round_.nodes)
    path = round_.verdict.path if isinstance(round_.verdict, DraftVerified) else ()
    text, nodes = "", children.get(0, [])
    while nodes:
        node = next((node for node in nodes if node.index in path), nodes[0])
        text, nodes = text + node.text, children.get(node.index, [])
    return text


def _fallen(round_: Round, spots: dict[int, _Spot], width: int) -> dict[int, Row]:
    """Return the rejected tokens, each below the token that was emitted instead."""
    found: dict[int, Row] = {}
    for number, position in enumerate(positions(round_)):
        losers = [token.label for token in position.tokens if token.mark == "rejected"]
        if (spot := spots.get(number)) is None:  # a token without text of its own
            continue
        for below, label in enumerate(losers[:FALLEN_ROWS], spot.row + 1):
            row = found.setdefault(below, [])
            piece = Piece(spot.column, label, "rejected")
            if piece.end <= width and (not row or row[-1].end < piece.column):
                row.append(piece)
    return found


def _figures(reply: Reply, times: Sequence[float]) -> Iterator[tuple[float, list[Part]]]:
    """Yield (seconds, figures) after some of the rounds, at most one per `_FIGURES_S`."""
    so_far = Reply(started=reply.started, plain=reply.plain, num_copied=reply.num_copied)
    if reply.prefill is not None:
        so_far.stats.add(reply.prefill)
    noted = -_FIGURES_S
    of_rounds = times[1 - first_number(reply) :]
    for round_, at in zip(reply.rounds, of_rounds, strict=False):  # text may come without a round
        if round_.draft is not None:
            so_far.stats.add(round_.draft)
        so_far.stats.add(round_.verdict)
        if at - noted >= _FIGURES_S:
            yield at, reply_figures(so_far)
            noted = at


def _draw(rows: dict[int, Row]) -> str:
    drawn = (shapes(row, _baseline(number)) for number, row in rows.items())
    return "".join(chain.from_iterable(drawn))


def _baseline(row: int) -> int:
    return row * ROW + ASCENT
