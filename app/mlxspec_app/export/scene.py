"""A recording as a scene: rows of cells, and the times at which they appear.

A picture draws the rows; the animated picture and the film play the steps. The pieces of a round
appear together, when the target has verified them; guessed words have the tint of the calm view.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, repeat

from rich.cells import cell_len

from mlxspec.trace.stats import GenerationStats
from mlxspec_app.conversation.figures import Part, quiet_figures
from mlxspec_app.conversation.messages import Reply
from mlxspec_app.conversation.views import CALM_INK
from mlxspec_app.export.recording import Recording, written_by_round
from mlxspec_app.playback.timeline import PAUSE_BETWEEN_REPLIES_S, Timeline
from mlxspec_app.text.safe_text import safe_line, safe_text
from mlxspec_app.text.tagged_lines import TaggedLines
from mlxspec_app.text.wrap import breaks

_FIGURES_S = 0.2  # between two lines of figures: nobody reads faster
_PROMPT_SIGN = "\u276f "


@dataclass(frozen=True)
class Piece:
    """Characters of a row with the same look: a `StyleName`, "said" by the user, or "muted"."""

    column: int  # the cell of the first character
    text: str
    look: str
    round: int = 0  # the number of the round that emitted them; 0 for kept tokens and other text

    @property
    def end(self) -> int:
        """The cell after the last character."""
        return self.column + cell_len(self.text)

    @property
    def word(self) -> "Piece | None":
        """The piece without the spaces around it; None if it consists of spaces."""
        word = self.text.strip(" ")
        indent = len(self.text) - len(self.text.lstrip(" "))
        return replace(self, column=self.column + indent, text=word) if word else None


Row = list[Piece]
Rows = dict[int, Row]
"""Rows by their number in the scene."""


@dataclass(frozen=True)
class Step:
    """Pieces that appear at a time, in seconds, and the figures from then on, if any."""

    at: float
    rows: Rows
    figures: Sequence[Part] = ()


class Scene:
    """The rows of a recording, and the steps in which they appear, in order of time.

    An empty row follows each message.
    """

    def __init__(self, recording: Recording, width: int, *, has_figures: bool = True) -> None:
        """Lay out a recording in rows of `width` cells.

        `has_figures` adds rows with the figures of each reply, and its error, below it.
        """
        self.width = width
        self.rows: list[Row] = []
        self.steps: list[Step] = []
        times = {id(moment.event): moment.at for moment in Timeline(recording.events).moments}
        now = 0.0
        for message in recording.messages:
            if not isinstance(message, Reply):
                self.steps.append(
                    Step(now, self._add(_line_rows(message.text, width, "said", _PROMPT_SIGN)))
                )
                continue
            now = self._play(message, times, now)
            figures = quiet_figures(message)
            words = [part.text for part in figures] + [safe_line(message.error)]
            below = _line_rows(" · ".join(filter(None, words)), width, "muted")
            rows = self._add(below) if has_figures else {}
            self.steps.append(Step(now, rows, figures=figures))
            now += PAUSE_BETWEEN_REPLIES_S

    @property
    def duration(self) -> float:
        """Seconds until the last step."""
        return max(step.at for step in self.steps)

    def _add(self, rows: list[Row]) -> Rows:
        numbered = dict(enumerate(rows, len(self.rows)))
        self.rows += [*rows, []]
        return numbered

    def _play(self, reply: Reply, times: Mapping[int, float], now: float) -> float:
        """Add a reply, with a step for each round; return the time of the last one.

        `times` are those of the events, by their id.
        """
        by_round: dict[int, Rows] = {}
        for row, pieces in self._add(_reply_rows(reply, self.width)).items():
            for piece in pieces:
                by_round.setdefault(piece.round, {}).setdefault(row, []).append(piece)
        figures = dict(_figures(reply, times))
        for number, _ in written_by_round(reply):
            if number == 0:
                now = times[id(reply.kept)]
            elif number <= len(reply.rounds):
                now = times[id(reply.rounds[number - 1].verdict)]
            self.steps.append(Step(now, by_round.get(number, {}), figures.get(number, ())))
        return now


def _line_rows(text: str, width: int, look: str, sign: str = "") -> list[Row]:
    """Return the wrapped rows of a text with one look, after a sign in the first row."""
    parts = _wrapped([text], max(1, width - len(sign)))
    rows = ("".join(part for part, _ in row) for row in parts)
    signs = chain([sign], repeat(" " * len(sign)))
    return [[Piece(0, before + row, look)] for before, row in zip(signs, rows, strict=False)]


def _reply_rows(reply: Reply, width: int) -> list[Row]:
    """Return the rows of a reply, its guessed words tinted."""
    texts: list[str] = []
    tokens: list[tuple[str, int]] = []
    for number, written in written_by_round(reply):
        for _, span in written:
            tokens.append((CALM_INK.style_of(span), number))
            texts.append(span.text)
    rows: list[Row] = []
    for row in _wrapped(texts, width):
        rows.append([])
        for part, tag in row:
            column = rows[-1][-1].end if rows[-1] else 0
            rows[-1].append(Piece(column, part, *tokens[tag]))
    return rows


def _wrapped(texts: Sequence[str], width: int) -> Iterator[list[tuple[str, int]]]:
    """Yield the rows of joined texts: characters, and the index of the text that they are from."""
    source = TaggedLines()
    for text in texts:
        source.append(safe_text(text))
    for line in source.lines:
        start = 0
        for end in (*breaks(line.text, width), len(line.text)):
            yield [(line.text[run.start : run.end], run.tag) for run in line.runs(start, end)]
            start = end


def _figures(reply: Reply, times: Mapping[int, float]) -> Iterator[tuple[int, list[Part]]]:
    """Yield (round, figures after it) for some of the rounds, at most one per `_FIGURES_S`."""
    so_far = replace(reply, stats=GenerationStats(), timed=[], told=(0, None), reason=None)
    if reply.prefill is not None:
        so_far.stats.add(reply.prefill)
    noted = -_FIGURES_S
    for number, round_ in enumerate(reply.rounds, 1):
        at = times[id(round_.verdict)]
        if round_.draft is not None:
            so_far.stats.add(round_.draft)
        so_far.stats.add(round_.verdict)
        so_far.timed += reply.timed[number - 1 : number]
        if at - noted >= _FIGURES_S:
            yield number, quiet_figures(so_far)
            noted = at
