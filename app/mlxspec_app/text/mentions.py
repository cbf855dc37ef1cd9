"""Files in a message: `@notes.txt` adds the text of the file in a block below the message.

A name after an @ at the start of a word is a file if such a file exists. If it looks like a path,
the file must exist; `@anna` stays as it is.
"""

import os
import re
from os.path import expanduser
from pathlib import Path

from mlxspec.files import NotTextError, read_text

_MENTION = re.compile(r"(?<!\S)@(\S+)")
_LOOKS_LIKE_A_FILE = re.compile(r".*/.*|.*\.[A-Za-z]\w{0,4}")
_MOST_BYTES = 100_000
_MOST_MATCHES = 6


class MentionError(ValueError):
    """A file that a message names cannot be added to it."""


def with_files(text: str, folder: Path) -> str:
    """Return the message with the files that it names; `folder` is for relative names."""
    names = list(dict.fromkeys(_MENTION.findall(text)))
    blocks = [block for name in names if (block := _block(name, folder))]
    return "\n\n".join([text, *blocks])


def begun_mention(line: str) -> str | None:
    """Return the unfinished name after an @ at the end of a line, or None."""
    found = re.search(r"(?<!\S)@(\S*)\Z", line)
    return found[1] if found else None


def matching_files(start: str, folder: Path) -> list[str]:
    """Return the names of files and folders that begin with `start`; folders end in a slash."""
    head, slash, tail = start.rpartition("/")
    try:
        entries = sorted(os.scandir(_path(head + slash or ".", folder)), key=lambda e: e.name)
    except OSError:
        return []
    names = [
        f"{head}{slash}{entry.name}{'/' if entry.is_dir() else ''}"
        for entry in entries
        if entry.name.startswith(tail) and (tail or not entry.name.startswith("."))
    ]
    # A space ends a mention, so a name with one cannot be completed.
    return [name for name in names if not re.search(r"\s", name)][:_MOST_MATCHES]


def _path(name: str, folder: Path) -> Path:
    return folder / Path(expanduser(name))


def _block(name: str, folder: Path) -> str:
    path = _path(name, folder)
    if not path.is_file():
        if path.is_dir() or _LOOKS_LIKE_A_FILE.fullmatch(name):
            kind = "is a folder" if path.is_dir() else "does not exist"
            raise MentionError(f"the file {name} {kind}; @ and a space send it as it is written")
        return ""
    try:
        content = read_text(path, _MOST_BYTES)
    except OSError as error:
        raise MentionError(f"the file {name} cannot be read: {error.strerror}") from error
    except NotTextError as error:
        raise MentionError(f"the file {name} is {error}") from error
    fence = "`" * max(3, *(len(ticks) + 1 for ticks in re.findall("`+", content)), 3)
    return f"{name}:\n{fence}\n{content.rstrip()}\n{fence}"
