"""The bottom line: keys and their meanings."""

from textual.app import ComposeResult
from textual.widgets import Footer


class KeyFooter(Footer):
    """Textual's footer, without its leak of key widgets.

    The footer makes all its key widgets again when the focus moves, and each of them watches
    `compact`. Textual drops the watchers of removed widgets only when `compact` changes, which
    never happens: so `compose` triggers it.
    """

    def __init__(self) -> None:
        super().__init__(show_command_palette=False)

    def compose(self) -> ComposeResult:
        self.mutate_reactive(Footer.compact)
        yield from super().compose()
