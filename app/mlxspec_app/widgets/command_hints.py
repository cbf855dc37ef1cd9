"""The commands that a line may become, listed above the prompt while it is typed."""

from textual.content import Content
from textual.widgets import Static

from mlxspec_app.commands import Command, matching

_MOST_ROWS = 6


class CommandHints(Static):
    """Shows what matches the line so far; takes no room while nothing does."""

    DEFAULT_CSS = """
    CommandHints { height: auto; padding: 0 1; display: none; text-wrap: nowrap; }
    """

    def __init__(self) -> None:
        """Make a list that shows nothing."""
        super().__init__()
        self._matching: tuple[Command, ...] = ()

    @property
    def best(self) -> str:
        """What Tab makes of the line, "" where nothing matches."""
        if not self._matching:
            return ""
        command = self._matching[0]
        return f"/{command.name} " if command.argument else f"/{command.name}"

    def show(self, line: str) -> None:
        found = tuple(matching(line))
        if found != self._matching:
            self._matching = found
            self.display = bool(found)
            self.update(Content("\n").join(_rows(found)))


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
