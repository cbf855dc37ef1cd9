"""The three views of a conversation: how much of its origin is shown.

*calm* is a page to read, *colours* adds one tint for guessed words, and the *X-ray* shows the exact
characters with all data of each token, in one of the inks.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class View:
    """A view; unless `is_rendered`, it shows the exact characters in place of rendered Markdown."""

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
