"""The row above a long conversation with the number of messages that have no widget yet."""

from textual.content import Content
from textual.message import Message as Notice
from textual.widgets import Static

from mlxspec_app.conversation.figures import count


class EarlierRow(Static):
    """Shows the number of earlier messages; hidden if there are none."""

    DEFAULT_CSS = """
    EarlierRow { height: 1; color: $spec-muted; display: none; padding: 0 0 0 2; }
    EarlierRow:hover { color: $foreground; }
    """
    ALLOW_SELECT = False

    class Requested(Notice):
        """The reader requests earlier messages."""

    def show(self, num_messages: int) -> None:
        self.display = num_messages > 0
        self.update(Content(f"↑ {count(num_messages)} earlier messages"))

    def on_click(self) -> None:
        self.post_message(self.Requested())
