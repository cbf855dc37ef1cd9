"""The row below a message with several versions: the number of the version that is shown."""

from dataclasses import dataclass

from textual import events
from textual.content import Content
from textual.message import Message
from textual.widgets import Static

from mlxspec_app.store.records import Version


class VersionMark(Static):
    """Shows `< 2/3 >`; a click on its left or right half requests another version."""

    DEFAULT_CSS = """
    VersionMark { width: auto; height: 1; margin: 0 0 0 2; color: $spec-muted; }
    """

    @dataclass
    class Chosen(Message):
        """The user requests another version of a message: `step` forwards, negative to go back."""

        message: int
        step: int

    def __init__(self, message: int, version: Version) -> None:
        super().__init__(_text(version))
        self._message = message

    def show(self, version: Version) -> None:
        self.update(_text(version))

    def on_click(self, event: events.Click) -> None:
        step = -1 if event.x < self.size.width / 2 else 1
        self.post_message(self.Chosen(self._message, step))


def _text(version: Version) -> Content:
    before = "<" if version.number > 1 else " "
    after = ">" if version.number < version.count else " "
    return Content(f"{before} {version.number}/{version.count} {after}")
