"""The bottom line: which keys do what."""

from textual.app import ComposeResult
from textual.widgets import Footer


class KeyFooter(Footer):
    """Textual's footer, which lets go of the keys that it shows no longer.

    It makes all of them anew whenever the focus moves, and each watches whether the footer is
    compact. Only a change of that would let go of those that are gone: in a chat of an hour, never.
    """

    def __init__(self) -> None:
        super().__init__(show_command_palette=False)

    def compose(self) -> ComposeResult:
        self.mutate_reactive(Footer.compact)
        yield from super().compose()
