"""A reply as rendered Markdown: for reading, once it is finished."""

from textual import on
from textual.widgets import Markdown

from mlxspec_app.safe_text import safe_text

_WEB = ("http://", "https://")


class RenderedReply(Markdown):
    """Shows the text of a reply without its marks and its inks."""

    DEFAULT_CSS = """
    RenderedReply {
        margin: 1 0 0 0;
        padding: 0 2;
        max-width: 104;
        background: $background;
    }
    """

    def __init__(self, text: str) -> None:
        """Render a text; what a model may have put into it to harm a terminal is made visible."""
        super().__init__(safe_text(text), open_links=False)

    @on(Markdown.LinkClicked)
    def _open(self, event: Markdown.LinkClicked) -> None:
        """Open pages of the web alone: a model could name any file or program."""
        if event.href.startswith(_WEB):
            self.app.open_url(event.href)
        else:
            self.notify(f"{event.href} is no page of the web", severity="warning", timeout=3)
