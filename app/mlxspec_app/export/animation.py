"""An animated SVG: the coloured conversation appears at the recorded speed.

Until the target has verified a round, one branch of its draft is shown in grey; rejected draft
tokens appear below the text in red and fade. A long conversation scrolls, as on a terminal. The
figures below it are those of the time that is shown.

All motion is CSS keyframes as long as the recording and a pause, so that everything restarts
together. There is no script: it also plays as an image in a page. Without keyframes the file shows
the last moment, for readers who prefer reduced motion.
"""

from collections.abc import Iterator, Sequence

from rich.cells import set_cell_size

from mlxspec_app.conversation.figures import Part, fitting
from mlxspec_app.export.picture import (
    ASCENT,
    HEAD,
    MARGIN,
    ROW,
    WIDTH,
    document,
    legend_rows,
    page_width,
    schemes,
    shapes,
)
from mlxspec_app.export.recording import Recording
from mlxspec_app.export.scene import FALLEN_ROWS, Piece, Rows, Scene, ShownDraft, Step
from mlxspec_app.text.safe_text import safe_line

HEIGHT = 20  # rows of the window
PAUSE_S = 4.0  # at the end, before it restarts
_FALL_S = 0.5  # until a rejected token has faded
_COLUMN = 15  # cells of a figure, so that none moves when another gets longer
_LEAST_TELLING = 3  # figures of a larger rank are left out
_AT_REST = (".ghost{visibility:hidden}", ".fallen{opacity:0;text-decoration:line-through}")
_HIDDEN, _SEEN = "visibility:hidden", "visibility:visible"


def render(recording: Recording, width: int = WIDTH) -> str:
    """Return the conversation as SVG that plays by itself, `width` cells wide."""
    scene = Scene(recording, width, has_figures=False)
    shown = Animation(scene, scene.duration + PAUSE_S)
    top = MARGIN + HEAD - ASCENT
    wide, bottom = page_width(width), top + shown.num_rows * ROW
    legend = legend_rows(width, has_kept=recording.has_kept)
    lines = bottom + MARGIN + ASCENT
    body = [
        shown.window(top, wide, shown.num_rows * ROW),
        f'<path class="edge" d="M{MARGIN} {bottom + 10}H{wide - MARGIN}"/>',
        *shown.figure_lines(lines),
        *(shape for n, row in enumerate(legend, 1) for shape in shapes(row, lines + n * ROW + 4)),
    ]
    high = lines + len(legend) * ROW + MARGIN
    return document(_title(recording, width), (wide, high), style([shown]), body)


def _title(recording: Recording, width: int) -> str:
    started = recording.replies[0].started
    names = [started.target, started.drafter] if started is not None else []
    title = safe_line(" · ".join([recording.title, *names]))
    return set_cell_size(title, width).rstrip(" ")


class Animation:
    """A scene as shapes and their keyframes."""

    def __init__(self, scene: Scene, length: float, prefix: str = "k") -> None:
        """Draw a scene that restarts after `length` seconds.

        `prefix` is the start of the names of the keyframes; each animation in a file needs its own.
        """
        self.length = length
        self.rules: list[str] = []
        self.num_rows = min(HEIGHT, len(scene.rows) - 1 + FALLEN_ROWS)
        self._width = scene.width
        self._prefix = prefix
        self._text: list[str] = []
        self._drafts: list[str] = []
        self._fallen: list[str] = []
        self._scrolled = [(0.0, 0)]  # (seconds, number of rows that have left the window by then)
        self._figures: list[tuple[float, str]] = []
        for step in scene.steps:
            self._play(step)

    def window(self, top: int, wide: int, high: int) -> str:
        """Return the part of the conversation that is visible, `top` pixels down."""
        gone = self._scrolled[-1][1]
        moves = [(at, f"transform:translateY({-rows * ROW}px)") for at, rows in self._scrolled]
        body = "\n".join([*self._fallen, *self._drafts, *self._text])
        name = self._keyframes(moves)
        return (  # a nested <svg> clips the rows that have scrolled out
            f'<svg y="{top}" width="{wide}" height="{high}">\n'
            f'<g transform="translate(0 {-gone * ROW})" style="animation-name:{name}">\n'
            f"{body}\n</g>\n</svg>"
        )

    def figure_lines(self, top: int) -> Iterator[str]:
        """Yield the lines of figures; one is visible at a time."""
        ends = [*(at for at, _ in self._figures[1:]), None]
        for (at, line), end in zip(self._figures, ends, strict=False):  # a torn reply has none
            yield self._shown("".join(shapes([Piece(0, line, "muted")], top)), at, end)

    def _play(self, step: Step) -> None:
        if step.rows:
            self._text.append(self._shown(_draw(step.rows), step.at))
            gone = max(step.rows) + 1 + FALLEN_ROWS - HEIGHT
            if gone > self._scrolled[-1][1]:
                self._scrolled.append((step.at, gone))
        if step.draft is not None:
            self._propose(step.draft, step.at)
        if step.figures:
            self._figures.append((step.at, self._line(step.figures)))

    def _propose(self, draft: ShownDraft, verified: float) -> None:
        """Show a draft until it is verified; what was rejected then fades."""
        branch = _draw({draft.row: [draft.branch]})
        self._drafts.append(self._shown(branch, draft.start, verified))
        if draft.fallen:
            begin = "opacity:1;animation-timing-function:linear"
            end = (verified + _FALL_S, "opacity:0")
            name = self._keyframes(((0.0, "opacity:0"), (verified, begin), end))
            drawn = _draw(draft.fallen)
            self._fallen.append(f'<g class="fallen" style="animation-name:{name}">{drawn}</g>')

    def _line(self, figures: Sequence[Part]) -> str:
        ranked = [part for part in figures if part.rank <= _LEAST_TELLING]
        parts = [Part(f"{part.text:<{_COLUMN}}", part.rank) for part in ranked]
        line = "".join(part.text for part in fitting(parts, self._width, gap=0))
        return set_cell_size(line, self._width)

    def _shown(self, drawn: str, start: float, end: float | None = None) -> str:
        if end is None:
            name = self._keyframes(((0.0, _HIDDEN), (start, _SEEN)))
            return f'<g style="animation-name:{name}">{drawn}</g>'
        name = self._keyframes(((0.0, _HIDDEN), (start, _SEEN), (end, _HIDDEN)))
        return f'<g class="ghost" style="animation-name:{name}">{drawn}</g>'

    def _keyframes(self, frames: Sequence[tuple[float, str]]) -> str:
        name = f"{self._prefix}{len(self.rules)}"
        shares = ((100 * min(1.0, at / self.length), looks) for at, looks in frames)
        steps = "".join(f"{share:.4f}%{{{looks}}}" for share, looks in shares)
        self.rules.append(f"@keyframes {name}{{{steps}}}")
        return name


def style(animations: Sequence[Animation]) -> list[str]:
    """Return the rules of a file with animations of one length, once they are drawn."""
    playing = f"g{{animation:{animations[0].length:.3f}s step-end infinite}}"
    rules = "".join(rule for animation in animations for rule in animation.rules)
    motion = f"{rules}\n@media (prefers-reduced-motion:no-preference){{{playing}}}"
    return [*_AT_REST, *schemes(_paint), motion]


def _paint(tint: dict[str, str]) -> list[str]:
    return [f".{name}{{fill:{tint[name]}}}" for name in ("pending", "rejected")]


def _draw(rows: Rows) -> str:
    drawn = (shape for number, row in rows.items() for shape in shapes(row, number * ROW + ASCENT))
    return "".join(drawn)
