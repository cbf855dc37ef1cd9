"""The table of export formats: name, suffix of the files, and module that renders it.

The app reads the table when it opens, so a module is imported only when it first renders.
"""

from dataclasses import dataclass
from importlib import import_module

from mlxspec_app.export.recording import Recording


@dataclass(frozen=True)
class Format:
    """A way to export a recording.

    `name` is also the option on the command line, `suffix` includes the dot, and `module` is the
    module of this package that renders it.
    """

    name: str
    suffix: str
    meaning: str
    module: str

    def render(self, recording: Recording) -> str:
        text: str = import_module(f"mlxspec_app.export.{self.module}").render(recording)
        return text


FORMATS = {
    made.name: made
    for made in (
        Format("html", ".html", "a page that plays it and works offline", "html"),
        Format("svg", ".svg", "a picture of the coloured text", "svg"),
        Format("animation", ".animation.svg", "an animated picture", "animation"),
        Format("cast", ".cast", "a screencast for the terminal, asciicast v2", "cast"),
        Format("md", ".md", "the conversation as Markdown, with figures", "markdown"),
        Format("text", ".md", "the conversation as Markdown, without figures", "bare_markdown"),
        Format("csv", ".csv", "a row for every round", "csv"),
    )
}
