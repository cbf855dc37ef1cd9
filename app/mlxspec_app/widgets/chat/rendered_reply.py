"""A finished reply as rendered Markdown."""

from typing import TYPE_CHECKING

from textual.app import ComposeResult
from textual.widget import Widget

from mlxspec_app.text.safe_text import safe_text

if TYPE_CHECKING:
    from textual.widgets import Markdown

_WEB = ("http://", "https://")


class RenderedReply(Widget):
    """Shows the text of a reply without Markdown marks and without inks."""

    DEFAULT_CSS = """
    RenderedReply {
        height: auto;
        margin: 1 0 0 0;
        max-width: 104;
        & > Markdown { padding: 0 2; background: $background; }
    }
    """

    def __init__(self, text: str) -> None:
        """Render a text, with visible signs for characters that could harm a terminal."""
        super().__init__()
        self._text = safe_text(text)

    def compose(self) -> ComposeResult:
        from textual.widgets import Markdown  # the import takes a tenth of the time to first frame

        yield Markdown(self._text, open_links=False)

    def on_markdown_link_clicked(self, event: "Markdown.LinkClicked") -> None:
        """Open web pages only: a model could write a link to any file or program."""
        if event.href.startswith(_WEB):
            self.app.open_url(event.href)
        else:
            self.notify(f"{event.href} is no page of the web", severity="warning", timeout=3)
