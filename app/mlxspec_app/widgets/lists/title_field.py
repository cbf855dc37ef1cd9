"""The field that replaces a chat's title in the list while the user changes it."""

from dataclasses import dataclass

from textual import on
from textual.message import Message
from textual.widgets import Input

from mlxspec_app.store.records import Entry


class TitleField(Input):
    """Reads another title for `entry`; hidden while that is None."""

    DEFAULT_CSS = """
    TitleField { margin: 0 0 0 2; background: $spec-line; display: none; }
    """

    @dataclass
    class Titled(Message):
        """The user entered another title for a chat."""

        chat: int
        title: str

    def __init__(self) -> None:
        super().__init__(compact=True)
        self.entry: Entry | None = None

    def ask(self, entry: Entry, row: int) -> None:
        """Show the field over a row of the list, with the present title."""
        self.entry, self.value = entry, entry.title
        self.offset = self.offset._replace(y=row)
        self.display = True
        self.focus()

    def hide(self) -> None:
        self.entry = None
        self.display = False

    @on(Input.Submitted)
    def _post_title(self, event: Input.Submitted) -> None:
        event.stop()
        entry, title = self.entry, event.value.strip()
        if entry is not None and title:
            self.post_message(self.Titled(entry.chat, title))
