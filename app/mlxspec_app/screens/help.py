"""The help page: views, legend and inks; the keys, commands, settings and figures of a screen."""

from collections.abc import Sequence
from typing import ClassVar, Literal, NamedTuple

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import Input, Static

from mlxspec_app.commands import Command
from mlxspec_app.conversation.figures import DEFINITIONS
from mlxspec_app.conversation.views import INKS, VIEWS
from mlxspec_app.screens.steady import SteadyModal
from mlxspec_app.settings.rules import RULES
from mlxspec_app.text.safe_text import safe_line
from mlxspec_app.widgets.chat.key_footer import KeyFooter
from mlxspec_app.widgets.draft.marks import NAME_CELLS, legend, plain_legend

_MUTED = "$spec-muted"
_KEY_CELLS = 16
_SETTING_CELLS = 30
_SIGNS_OF_ROWS = (
    "The block at the left edge of a row is the share of it that was guessed; a change of "
    "background is a new round, or a line below its first character where no background can be "
    "seen."
)


class Row(NamedTuple):
    """A row of the page; `indent` is the number of cells before each line but the first."""

    content: Content
    indent: int = 0

    def wrapped(self, width: int) -> list[Content]:
        first = self.content.wrap(width)[0]
        rest = self.content[len(first.plain.rstrip()) :]
        rest = rest[len(rest.plain) - len(rest.plain.lstrip()) :]
        if not rest.plain:
            return [first]
        return [first, *(line.pad_left(self.indent) for line in rest.wrap(width - self.indent))]


class HelpPage(Static):
    """Rows, wrapped to the width of the widget."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self._rows = rows
        super().__init__(Content("\n").join(row.content for row in rows))

    def show(self, rows: Sequence[Row]) -> None:
        self._rows = rows
        self.on_resize()

    def on_resize(self) -> None:
        lines = (line for row in self._rows for line in row.wrapped(self.size.width))
        self.update(Content("\n").join(lines))


class HelpScreen(SteadyModal[None]):
    """Explains the screen below it; what is typed filters it, and Escape or F1 closes it."""

    AUTO_FOCUS = "Input"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,f1", "dismiss", "Close", priority=True),
        Binding("pageup,up", "page(-1)", "Page up", priority=True),
        Binding("pagedown,down", "page(1)", "Page down", priority=True),
    ]

    def __init__(self, keys: Sequence[tuple[str, str]], commands: Sequence[Command] = ()) -> None:
        """`keys` are keys and their meaning."""
        super().__init__()
        self._keys, self._commands = keys, commands

    def compose(self) -> ComposeResult:
        with VerticalScroll(id="help", can_focus=False):
            yield Input(placeholder="type to search", compact=True)
            yield HelpPage(help_rows(self._keys, self._commands))
        yield KeyFooter()

    @on(Input.Changed)
    def _filter(self, event: Input.Changed) -> None:
        self.query_one(HelpPage).show(help_rows(self._keys, self._commands, event.value))
        self.query_one(VerticalScroll).scroll_home(animate=False)

    def action_page(self, direction: Literal[1, -1]) -> None:
        page = self.query_one(VerticalScroll)
        page.scroll_relative(y=direction * page.size.height, animate=False)


def help_rows(
    keys: Sequence[tuple[str, str]], commands: Sequence[Command] = (), sought: str = ""
) -> list[Row]:
    """Return the rows of the help page of a screen, those that contain all words of `sought`."""
    words = sought.casefold().split()
    sections = {
        "Views (F2)": [
            *(Row(row, NAME_CELLS) for row in plain_legend()[:2]),
            *(_entry(view.name, view.meaning, NAME_CELLS) for view in VIEWS),
        ],
        "The X-ray: what its colours and signs mean": [
            *(Row(row, len("✓ ") + NAME_CELLS) for row in legend()),
            Row(Content.styled(_SIGNS_OF_ROWS, _MUTED)),
        ],
        "Inks of the X-ray (I, /ink)": [_entry(ink.name, ink.meaning) for ink in INKS],
        "Keys": [_entry(key, meaning) for key, meaning in keys],
        "Commands": [_entry(command.usage, command.meaning) for command in commands],
        "Settings (F5)": [
            _entry(name, rule.meaning, _SETTING_CELLS) for name, rule in RULES.items() if commands
        ],
        "Figures": [_entry(each.name, each.meaning) for each in DEFINITIONS if not each.is_sign],
    }
    rows: list[Row] = []
    for title, entries in sections.items():
        found = [row for row in entries if all(w in row.content.plain.casefold() for w in words)]
        if found:
            heading = Row(Content.styled(title, "$foreground bold"))
            rows += [*([Row(Content(""))] if rows else []), heading, *found]
    return rows or [Row(Content.styled(f"nothing here has {safe_line(sought)!r} in it", _MUTED))]


def _entry(name: str, meaning: str, cells: int = _KEY_CELLS + 1) -> Row:
    named = (name.ljust(cells - 1), "$foreground")
    return Row(Content.assemble(named, (f" {meaning}", _MUTED)), cells)
