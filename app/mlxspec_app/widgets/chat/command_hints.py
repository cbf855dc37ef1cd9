"""Completions of the typed line, commands or names of files, in a list above the prompt."""

from pathlib import Path

from textual.content import Content
from textual.widgets import Static

from mlxspec_app.commands import Command, matching
from mlxspec_app.text.mentions import begun_mention, matching_files
from mlxspec_app.text.safe_text import safe_line

_MOST_ROWS = 6


class CommandHints(Static):
    """Shows the completions that match the line; hidden if there are none."""

    DEFAULT_CSS = """
    CommandHints { height: auto; padding: 0 1; display: none; text-wrap: nowrap; }
    """

    def __init__(self) -> None:
        """Make an empty list."""
        super().__init__()
        self._line = ""
        self._matching: tuple[Command, ...] = ()
        self._files: list[str] = []

    @property
    def best(self) -> str:
        """The line after Tab; "" if nothing matches."""
        if self._files:
            name = self._files[0]
            begun = self._line.rpartition("@")[0]
            return f"{begun}@{name}" if name.endswith("/") else f"{begun}@{name} "
        if not self._matching:
            return ""
        command = self._matching[0]
        return f"/{command.name} " if command.argument else f"/{command.name}"

    def show(self, line: str) -> None:
        self._line, mention = line, begun_mention(line)
        found = tuple(matching(line))
        files = [] if mention is None else matching_files(mention, Path.cwd())
        if (found, files) != (self._matching, self._files):
            self._matching, self._files = found, files
            self.display = bool(found or files)
            self.update(Content("\n").join(_rows(found) or _file_rows(files)))


def _rows(commands: tuple[Command, ...]) -> list[Content]:
    shown = commands[:_MOST_ROWS]
    cells = max((len(command.usage) for command in shown), default=0)
    rows = [
        Content.assemble(
            (command.usage.ljust(cells), "$foreground" if number else "$foreground bold"),
            (f"  {command.meaning}", "$spec-muted"),
            ("" if number else "   Tab", "$spec-muted"),
        )
        for number, command in enumerate(shown)
    ]
    if len(commands) > _MOST_ROWS:
        rows.append(Content.styled(f"… {len(commands) - _MOST_ROWS} more", "$spec-muted"))
    return rows


def _file_rows(names: list[str]) -> list[Content]:
    return [
        Content.assemble(
            (f"@{safe_line(name)}", "$foreground" if number else "$foreground bold"),
            ("" if number else "   Tab", "$spec-muted"),
        )
        for number, name in enumerate(names)
    ]
