"""The table of export formats, and an export to a file: the given one, or a free name.

An existing file stays, unless the order ends in `--force`, as on the command line.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from os.path import expanduser
from pathlib import Path

from mlxspec.trace.events import Event
from mlxspec_app.export.recording import Recording, chat_title
from mlxspec_app.user.files import free_path, replace_file

FORCE = "--force"
DEFAULT_STEM = "chat"
DEFAULT_FORMAT = "html"
_STEM_CHARACTERS = 40


@dataclass(frozen=True)
class Format:
    """A way to export a recording; `name` is also the option on the command line.

    `module` of this package has the function `writer`; it is imported with the first export, not
    with the app.
    """

    name: str
    suffix: str
    module: str
    writer: str = "render"

    def render(self, recording: Recording) -> str:
        module = import_module(f"mlxspec_app.export.{self.module}")
        text: str = getattr(module, self.writer)(recording)
        return text


FORMATS = {
    made.name: made
    for made in (
        Format("html", ".html", "html"),
        Format("svg", ".svg", "svg", "picture"),
        Format("animation", ".animation.svg", "svg", "animation"),
        Format("cast", ".cast", "film"),
        Format("md", ".md", "markdown"),
        Format("text", ".md", "markdown", "bare"),
        Format("csv", ".csv", "csv"),
    )
}


@dataclass(frozen=True)
class FilingOrder:
    """Format and file of an export; a path of None is a free name in the current folder."""

    format: Format
    path: Path | None = None
    replaces: bool = False


def read_order(text: str) -> FilingOrder:
    """Parse `[FORMAT [FILE] [--force]]`; the name of the file may contain spaces.

    The default format is the page, which contains all that the others show.
    """
    name, _, rest = (text.strip() or DEFAULT_FORMAT).partition(" ")
    if name not in FORMATS:
        raise ValueError(f"cannot export as {name!r}; choose from {', '.join(FORMATS)}")
    rest = rest.strip()
    replaces = rest == FORCE or rest.endswith(f" {FORCE}")
    rest = rest.removesuffix(FORCE).strip() if replaces else rest
    return FilingOrder(FORMATS[name], Path(rest) if rest else None, replaces)


def file_away(order: FilingOrder, events: Sequence[Event], title: str = "") -> tuple[Path, int]:
    """Export the events of a chat; return the file and its size in bytes.

    The default title is the start of the first message.
    """
    title = title or chat_title(events)
    text = order.format.render(Recording.of(title or DEFAULT_STEM, events))
    path = Path(expanduser(order.path or free_path(Path(), stem_of(title), order.format.suffix)))
    return path, write_whole(path, text, replaces=order.replaces)


def taken(path: str | Path) -> str:
    """Return the message for a file that exists and is not to be replaced."""
    return f"{path} already exists: name another file, or add {FORCE}"


def write_whole(path: Path, text: str, *, replaces: bool) -> int:
    """Write a file and return its size in bytes; after an error the old file remains, or none."""
    data = encoded(text)
    try:
        if replaces and path.is_file():
            replace_file(path, data)
        elif replaces and path.exists():
            path.write_bytes(data)  # a pipe or a device, such as /dev/stdout, cannot be replaced
        else:
            _create(path, data)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error
    return len(data)


def _create(path: Path, data: bytes) -> None:
    with path.open("xb") as file:  # fails even if the file has appeared since the check
        try:
            file.write(data)
            file.flush()
        except OSError:
            path.unlink()
            raise


def stem_of(title: str) -> str:
    """Return a title as the name of a file: letters and digits, with hyphens between."""
    stem = ""
    for word in re.findall(r"\w+", title.lower()):
        if stem and len(stem) + 1 + len(word) > _STEM_CHARACTERS:
            break
        stem += f"-{word}" if stem else word[:_STEM_CHARACTERS]
    return stem or DEFAULT_STEM


def encoded(text: str) -> bytes:
    """Return the UTF-8 bytes of an export; a lone surrogate from a trace becomes an escape."""
    return text.encode("utf-8", errors="backslashreplace")
