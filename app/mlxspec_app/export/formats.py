"""The table of exports: what each is called, how its files end, and what makes it."""

from collections.abc import Callable
from dataclasses import dataclass

from mlxspec_app.export.cast import render as cast
from mlxspec_app.export.csv import render as csv
from mlxspec_app.export.html import render as html
from mlxspec_app.export.markdown import render as markdown
from mlxspec_app.export.recording import Recording
from mlxspec_app.export.svg import render as svg


@dataclass(frozen=True)
class Format:
    """A way to export a recording.

    Attributes:
        name: The word for it, which is also its option on the command line.
        suffix: How its files end, with the dot.
        meaning: What it is good for, in a few words.
        render: Makes the text of the file.
    """

    name: str
    suffix: str
    meaning: str
    render: Callable[[Recording], str]


FORMATS = {
    made.name: made
    for made in (
        Format("html", ".html", "one page that plays it, works offline", html),
        Format("svg", ".svg", "a picture of the coloured text", svg),
        Format("cast", ".cast", "a film for the terminal, asciicast v2", cast),
        Format("md", ".md", "the conversation as Markdown", markdown),
        Format("csv", ".csv", "a row for every round", csv),
    )
}
