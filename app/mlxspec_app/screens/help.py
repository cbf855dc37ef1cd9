"""The help page: views, legend and inks, and the keys, commands and figures of a screen."""

from collections.abc import Sequence
from typing import ClassVar, Literal, NamedTuple

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import Static

from mlxspec_app.commands import Command
from mlxspec_app.conversation.definitions import DEFINITIONS
from mlxspec_app.conversation.inks import INKS
from mlxspec_app.conversation.views import VIEWS
from mlxspec_app.screens.steady import SteadyModal
from mlxspec_app.widgets.chat.key_footer import KeyFooter
from mlxspec_app.widgets.draft.legend import NAME_CELLS, legend, plain_legend

_MUTED = "$spec-muted"
_HEADING = "$foreground bold"
_KEY_CELLS = 16


class Key(NamedTuple):
    """A key and what it does."""

    key: str
    meaning: str


class HelpScreen(SteadyModal[None]):
    """Explains the screen below it; Escape, F1, ?, H or q closes it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,f1,question_mark,H,q", "dismiss", "Close"),
        Binding("pageup,p", "page(-1)", "Page up", priority=True),
        Binding("pagedown,o", "page(1)", "Page down", priority=True),
        Binding("ctrl+c", "dismiss", "Back", show=False, priority=True),
    ]

    def __init__(self, keys: Sequence[Key], commands: Sequence[Command] = ()) -> None:
        """Make the page for a screen with these keys and commands."""
        super().__init__()
        self._keys, self._commands = keys, commands

    def compose(self) -> ComposeResult:
        with VerticalScroll(id="help"):
            yield Static(Content("\n").join(help_rows(self._keys, self._commands)))
        yield KeyFooter()

    def action_page(self, direction: Literal[1, -1]) -> None:
        page = self.query_one(VerticalScroll)
        page.scroll_relative(y=direction * page.size.height, animate=False)


def help_rows(keys: Sequence[Key], commands: Sequence[Command] = ()) -> list[Content]:
    """Return the rows of the page."""
    rows = [Content.styled("Views (F2)", _HEADING), *plain_legend()[:2]]
    rows += [_entry(view.name, view.meaning, NAME_CELLS) for view in VIEWS]
    rows += [Content(""), Content.styled("The X-ray: what its colours and signs mean", _HEADING)]
    rows += legend()
    rows.append(
        Content.styled(
            "The block at the left edge of a row is the share of it that was drafted; a change of "
            "background is a new round, or a line below its first character where no background "
            "can be seen.",
            _MUTED,
        )
    )
    rows += [Content(""), Content.styled("Inks of the X-ray (I, /ink)", _HEADING)]
    rows += [_entry(ink.name, ink.meaning) for ink in INKS]
    rows += [Content(""), Content.styled("Keys", _HEADING)]
    rows += [_entry(key.key, key.meaning) for key in keys]
    if commands:
        rows += [Content(""), Content.styled("Commands", _HEADING)]
    rows += [_entry(command.usage, command.meaning) for command in commands]
    rows += [Content(""), Content.styled("Figures", _HEADING)]
    rows += [_entry(figure.name, figure.meaning) for figure in DEFINITIONS if not figure.is_sign]
    return rows


def _entry(name: str, meaning: str, cells: int = _KEY_CELLS + 1) -> Content:
    return Content.assemble((name.ljust(cells - 1), "$foreground"), (f" {meaning}", _MUTED))
