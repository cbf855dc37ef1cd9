"""The row that searches the open chat: the search words, and the number of the shown hit."""

from collections.abc import Callable, Sequence
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal
from textual.widgets import Input, Label

from mlxspec_app.conversation.messages import Hit
from mlxspec_app.settings.keys.tables import FIND


class FindField(Input):
    """The input of the words. It binds the keys of the row, as an `Input` uses Enter itself."""

    BINDINGS: ClassVar[list[BindingType]] = list(FIND)

    def action_step(self, step: int) -> None:
        self.query_ancestor(FindBar).step(step)

    def action_close(self) -> None:
        self.query_ancestor(FindBar).close()


class FindBar(Horizontal):
    """Searches as the user types, starting at the newest hit; hidden while it is closed."""

    def __init__(
        self, find: Callable[[str], Sequence[Hit]], show: Callable[[Hit | None], None]
    ) -> None:
        """`find` returns hits, oldest first, and `show(None)` ends the search."""
        super().__init__()
        self._find, self._show = find, show
        self._index = -1

    def compose(self) -> ComposeResult:
        yield Label("find ")
        yield FindField(select_on_focus=True, compact=True)
        yield Label(id="found")

    @property
    def is_open(self) -> bool:
        return bool(self.display)

    def open(self, words: str = "") -> None:
        """Show the row and search; "" repeats the last search."""
        self.display = True
        field = self.query_one(Input)
        field.value = words or field.value
        field.focus()
        self._search()

    def close(self) -> None:
        self.display = False
        self._show(None)

    def step(self, step: int) -> None:
        """Show the hit `step` hits below; it wraps around at both ends."""
        hits = self._hits()
        self._index = (self._index + step) % len(hits) if hits else -1
        self._show_hit(hits)

    @on(Input.Changed)
    def _search(self) -> None:
        hits = self._hits()
        self._index = len(hits) - 1
        self._show_hit(hits)

    def _hits(self) -> Sequence[Hit]:
        return self._find(self.query_one(Input).value)

    def _show_hit(self, hits: Sequence[Hit]) -> None:
        words = f" {self._index + 1} of {len(hits)}" if hits else " no match in this chat"
        self.query_one("#found", Label).update(words if self.query_one(Input).value else "")
        if hits:
            self._show(hits[self._index])
