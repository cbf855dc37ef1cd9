"""The menu above the prompt: completions of the typed line, one of which can be marked.

A line is completed by commands, their arguments, and file names after an @.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from textual.content import Content
from textual.widgets import Static

from mlxspec_app.commands import BY_NAME, Command, matching
from mlxspec_app.text.mentions import begun_mention, matching_files
from mlxspec_app.text.safe_text import safe_line

_ARGUMENT = re.compile(r"/([a-z_]+) +(\S*)")
_MOST_ROWS = 6
_UNMARKED = -1


@dataclass(frozen=True)
class Completion:
    """One way to complete a line."""

    line: str
    label: str
    meaning: str = ""
    is_whole: bool = True  # the line can be entered; else something has to follow


@dataclass(frozen=True)
class Completions:
    """The completions of one line, the best one first."""

    found: Sequence[Completion] = ()
    is_chosen: bool = False  # Enter takes the first one, because the line is not valid as typed


def completions(line: str, words: Mapping[str, Sequence[str]], folder: Path) -> Completions:
    """Return the completions of a line; `words` are arguments known at run time, by command."""
    typed = _ARGUMENT.fullmatch(line)
    command = BY_NAME.get(typed[1]) if typed is not None else None
    if typed is not None and command is not None:
        return _of_argument(command, typed[2], (*command.choices, *words.get(command.name, ())))
    if commands := matching(line):
        return Completions([_of_command(command) for command in commands], is_chosen=True)
    mention = begun_mention(line)
    return Completions(list(_of_file(line, mention, folder)) if mention is not None else ())


def _of_command(command: Command) -> Completion:
    line = f"/{command.name} " if command.argument else f"/{command.name}"
    is_whole = not command.argument or command.is_optional
    return Completion(line, command.usage, command.meaning, is_whole)


def _of_argument(command: Command, begun: str, choices: Sequence[str]) -> Completions:
    low = begun.lower()
    found = [choice for choice in choices if choice.lower().startswith(low)]
    found.sort(key=lambda choice: choice.lower() != low)  # an exact match comes first
    is_chosen = bool(found) and bool(begun or not command.is_optional)
    if command.is_open:  # names can be long: their owners come first
        found += [one for one in choices if low in one.lower() and one not in found]
    meanings = command.explained
    rows = [Completion(f"/{command.name} {one}", one, meanings.get(one, "")) for one in found]
    return Completions(rows, is_chosen)


def _of_file(line: str, begun: str, folder: Path) -> Iterable[Completion]:
    before = line.removesuffix(begun)
    for name in matching_files(begun, folder):
        end = "" if name.endswith("/") else " "
        yield Completion(f"{before}{name}{end}", f"@{name}", is_whole=False)


class CommandHints(Static):
    """Shows the completions of the line; hidden if there are none, or once the user closes it."""

    def __init__(self) -> None:
        super().__init__()
        # arguments that only the running app can list, by the name of their command
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
