"""Pictures of the conversation, SVG: one that stands still, and one that plays.

Every run of characters has the coordinates of its own cell, so the fonts of another machine cannot
shift a line. A picture loads no files and runs no scripts. It has rules for the reader's light and
dark scheme, both written out, because not every renderer supports CSS variables.

Guessed words are tinted, as in the calm view. All motion is CSS keyframes as long as the recording
and a pause, so that everything restarts together. Without keyframes the file shows the last moment,
for readers who prefer reduced motion.
"""

from collections.abc import Callable, Iterator, Sequence
from html import escape

from rich.cells import cell_len, set_cell_size

from mlxspec_app.conversation.figures import Part, fitting
from mlxspec_app.export.looks import colours
from mlxspec_app.export.recording import Recording
from mlxspec_app.export.scene import Piece, Row, Rows, Scene, Step
from mlxspec_app.text.safe_text import safe_line

WIDTH = 80
CELL, ROW = 8.43, 21  # pixels; a monospaced glyph is 0.602 of the font size
MARGIN, HEAD = 26, 42
ASCENT = 15  # pixels from the top of a row to its baseline
_SIZE = 14
_FONTS = "ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono','Liberation Mono',monospace"
_NOT_XML = dict.fromkeys((0xFFFE, 0xFFFF), "\ufffd")  # XML allows them neither raw nor escaped
LEGEND = [Piece(0, "guessed", "guess"), Piece(10, "the model's own", "plain")]
HEIGHT = 20  # rows of the window
PAUSE_S = 4.0  # at the end, before it restarts
_COLUMN = 15  # cells of a figure, so that none moves when another gets longer
_LEAST_TELLING = 3  # figures of a larger rank are left out
_HIDDEN, _SEEN = "visibility:hidden", "visibility:visible"


def picture(recording: Recording, width: int = WIDTH) -> str:
    """Return the conversation as SVG, `width` cells wide."""
    rows = [*Scene(recording, width).rows, LEGEND]
    high = 2 * MARGIN + HEAD + (len(rows) - 1) * ROW
    top = MARGIN + HEAD
    drawn = [shape for n, row in enumerate(rows) for shape in shapes(row, top + n * ROW)]
    return document(recording.title, (page_width(width), high), [], drawn)


def animation(recording: Recording, width: int = WIDTH) -> str:
    """Return the conversation as SVG that plays by itself, `width` cells wide."""
    scene = Scene(recording, width, has_figures=False)
    shown = Animation(scene, scene.duration + PAUSE_S)
    top = MARGIN + HEAD - ASCENT
    wide, bottom = page_width(width), top + shown.num_rows * ROW
    lines = bottom + MARGIN + ASCENT
    body = [
        shown.window(top, wide, shown.num_rows * ROW),
        f'<path class="edge" d="M{MARGIN} {bottom + 10}H{wide - MARGIN}"/>',
        *shown.figure_lines(lines),
        *shapes(LEGEND, lines + ROW + 4),
    ]
    high = lines + ROW + MARGIN
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
        self.num_rows = min(HEIGHT, len(scene.rows) - 1)
        self._width = scene.width
        self._prefix = prefix
        self._text: list[str] = []
        self._scrolled = [(0.0, 0)]  # (seconds, number of rows that have left the window by then)
        self._figures: list[tuple[float, str]] = []
        for step in scene.steps:
            self._play(step)

    def window(self, top: int, wide: int, high: int) -> str:
        """Return the part of the conversation that is visible, `top` pixels down."""
        gone = self._scrolled[-1][1]
        moves = [(at, f"transform:translateY({-rows * ROW}px)") for at, rows in self._scrolled]
        body = "\n".join(self._text)
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
            gone = max(step.rows) + 1 - HEIGHT
            if gone > self._scrolled[-1][1]:
                self._scrolled.append((step.at, gone))
        if step.figures:
            self._figures.append((step.at, self._line(step.figures)))

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
    return [".ghost{visibility:hidden}", motion]


def _draw(rows: Rows) -> str:
    drawn = (shape for number, row in rows.items() for shape in shapes(row, number * ROW + ASCENT))
    return "".join(drawn)


def document(title: str, size: tuple[int, int], style: Sequence[str], body: Sequence[str]) -> str:
    """Return an SVG file of `size` (width, height) pixels: the page, its title and the shapes."""
    wide, high = size
    name = escaped(safe_line(title))
    rules = "\n".join([*_rules(), *style])
    drawn = "\n".join(body)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {high}" width="{wide}" '
        f'height="{high}" role="img" aria-label="{name}">\n<title>{name}</title>\n'
        f"<style>\n{rules}\n</style>\n"
        f'<rect class="page" x="0.5" y="0.5" width="{wide - 1}" height="{high - 1}" rx="10"/>\n'
        f'<text class="muted" x="{MARGIN}" y="{MARGIN + 4}">{name}</text>\n'
        f'<path class="edge" d="M{MARGIN} {MARGIN + 16}H{wide - MARGIN}"/>\n'
        f"{drawn}\n</svg>\n"
    )


def page_width(width: int) -> int:
    """Return the width in pixels of a page with rows of `width` cells."""
    return round(2 * MARGIN + width * CELL)


def escaped(text: str) -> str:
    """Return the text escaped for XML."""
    return escape(text.translate(_NOT_XML))


def schemes(paint: Callable[[dict[str, str]], list[str]]) -> list[str]:
    """Return the rules in the colours of the dark theme, then those for a light scheme."""
    light = "".join(paint(colours(dark=False)))
    return [*paint(colours(dark=True)), f"@media (prefers-color-scheme:light){{{light}}}"]


def shapes(row: Row, top: int) -> Iterator[str]:
    """Yield the words of pieces whose baseline is `top` pixels down."""
    for word in (piece.word for piece in row):
        if word is not None:
            yield (
                f'<text class="{word.look}" x="{MARGIN + word.column * CELL:.2f}" y="{top}" '
                f'textLength="{cell_len(word.text) * CELL:.2f}" xml:space="preserve">'
                f"{escaped(word.text)}</text>"
            )


def _rules() -> list[str]:
    return [
        f"text{{font:{_SIZE}px {_FONTS};white-space:pre}}",
        ".edge{fill:none;stroke-width:1}",
        ".said{font-weight:700}",
        *schemes(_paint),
    ]


def _paint(tint: dict[str, str]) -> list[str]:
    words = {"said": "text", "muted": "muted", "plain": "plain", "guess": "guess"}
    return [
        f".page{{fill:{tint['page']};stroke:{tint['line']}}}",
        f".edge{{stroke:{tint['line']}}}",
        *(f".{name}{{fill:{tint[colour]}}}" for name, colour in words.items()),
    ]
