"""The three views of a conversation: how much of its origin is shown.

*calm* is a page to read, *colours* adds one tint for the words that were guessed, and the *X-ray*
shows the exact characters with all that is known of each token, in one of the inks.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class View:
    """A view.

    Attributes:
        name: Its name in commands and settings.
        meaning: What it shows, in a few words.
        is_rendered: Whether Markdown is rendered; else the exact characters are shown.
        is_tinted: Whether guessed words have a tint.
    """

    name: str
    meaning: str
    is_rendered: bool = True
    is_tinted: bool = False


CALM = View("calm", "a page to read, without colours")
COLOURS = View("colours", "the same page, with guessed words tinted", is_tinted=True)
XRAY = View("xray", "the X-ray: the exact text, every token and round", is_rendered=False)
VIEWS = (CALM, COLOURS, XRAY)
DEFAULT_VIEW = COLOURS


def next_view(view: View) -> View:
    """Return the next view; after the last one comes the first."""
    return VIEWS[(VIEWS.index(view) + 1) % len(VIEWS)]


def view_named(name: str) -> View:
    """Return the view of this name, else the default one."""
    return next((view for view in VIEWS if view.name == name), DEFAULT_VIEW)
