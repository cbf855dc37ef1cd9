"""The menu above the prompt: completions of the typed line, one of which can be marked."""

from collections.abc import Sequence
from pathlib import Path

from textual.content import Content
from textual.widgets import Static

from mlxspec_app.completions import Completion, Completions, completions
from mlxspec_app.text.safe_text import safe_line

_MOST_ROWS = 6
_UNMARKED = -1


class CommandHints(Static):
    """Shows the completions of the line; hidden if there are none, or once the user closes it.

    `words` has the arguments that only the running app can list, by the name of their command.
    """

    DEFAULT_CSS = """
    CommandHints {
        height: auto;
        padding: 0 1;
        display: none;
        text-wrap: nowrap;
        text-overflow: ellipsis;
    }
    """

    def __init__(self) -> None:
        super().__init__()
        self.words: dict[str, Sequence[str]] = {}
        self._line = ""
        self._rows: Sequence[Completion] = ()
        self._marked = _UNMARKED

    @property
    def is_open(self) -> bool:
        return bool(self._rows)

    @property
    def marked(self) -> Completion | None:
        """The completion that Enter takes, or None."""
        return self._rows[self._marked] if 0 <= self._marked < len(self._rows) else None

    @property
    def best(self) -> Completion | None:
        """The completion that Tab takes: the marked one, else the first."""
        return self.marked or next(iter(self._rows), None)

    def show(self, line: str) -> None:
        """Show the completions of a line; an unchanged line keeps its mark."""
        if line != self._line:
            self._line = line
            self._take(completions(line, self.words, Path.cwd()))

    def offer(self, name: str, words: Sequence[str]) -> None:
        """Complete the argument of a command with these words from now on."""
        self.words[name] = words
        if self._line.startswith(f"/{name} "):
            self._take(completions(self._line, self.words, Path.cwd()))

    def move(self, step: int) -> None:
        """Move the mark down by `step` rows; it wraps around at both ends."""
        start = self._marked if self.marked is not None or step > 0 else 0
        self._marked = (start + step) % len(self._rows)
        self._draw()

    def close(self) -> None:
        """Hide the menu until the line changes."""
        self._take(Completions())

    def _take(self, found: Completions) -> None:
        self._rows, self._marked = found.found, 0 if found.is_chosen else _UNMARKED
        self.display = self.is_open
        self._draw()

    def _draw(self) -> None:
        first = max(0, min(self._marked - _MOST_ROWS // 2, len(self._rows) - _MOST_ROWS))
        shown = self._rows[first : first + _MOST_ROWS]
        cells = max((len(row.label) for row in shown), default=0)
        rows = [self._row(row, cells) for row in shown]
        if len(self._rows) > _MOST_ROWS:
            more = f"  {first + 1} to {first + len(shown)} of {len(self._rows)} · ↑ ↓"
            rows.append(Content.styled(more, "$spec-muted"))
        self.update(Content("\n").join(rows))

    def _row(self, row: Completion, cells: int) -> Content:
        is_marked = row is self.marked
        key = "Enter" if is_marked else "Tab" if row is self.best else ""
        return Content.assemble(
            ("› " if is_marked else "  ", "$foreground bold"),  # noqa: RUF001 - a sign of ours
            (safe_line(row.label).ljust(cells), "$foreground bold" if key else "$foreground"),
            (f"  {key:5}  {row.meaning}", "$spec-muted"),
        )
