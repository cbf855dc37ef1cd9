"""Removes names, paths and addresses from a report.

A report holds figures, but also texts of devices, libraries and errors, and an error may name a
file. A path is removed up to the next character that cannot be in a path, because the name of a
folder may contain a space: removing a word too many is better than leaving a name.
"""

import getpass
import os
import platform
import re
from pathlib import Path
from typing import Any

_LEAST = 3  # letters: a shorter name is not removed, because many texts contain it by chance
_ADDRESS = re.compile(r"\b[a-z][a-z0-9+.-]*://[^\s'\"]+", re.IGNORECASE)
_PATH = re.compile(r"(?:^|(?<=[\s'\"(=\[<:]))(?:~|\.{0,2})/[^:,;()'\"<>\n]*", re.MULTILINE)
_WORDS = (_ADDRESS, "<address>"), (_PATH, "<path>")


def scrubbed(value: Any) -> Any:
    """Return a JSON value without the names of this machine and its user in any text."""
    if isinstance(value, str):
        return _text(value, own_names())
    if isinstance(value, dict):
        return {key: scrubbed(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [scrubbed(inner) for inner in value]
    return value


def own_names() -> set[str]:
    """Return the names of this machine, its user and the user's home folder."""
    host = platform.node()
    names = {host, host.partition(".")[0], Path.home().name, str(Path.home())}
    try:
        names.add(getpass.getuser())
    except (OSError, KeyError, ImportError):  # a user without a name
        names.add(os.environ.get("USER", ""))
    return {name for name in names if len(name) >= _LEAST}


def _text(text: str, names: set[str]) -> str:
    for pattern, word in _WORDS:
        text = pattern.sub(word, text)
    for name in sorted(names, key=len, reverse=True):
        text = re.sub(rf"(?<!\w){re.escape(name)}(?!\w)", "<name>", text, flags=re.IGNORECASE)
    return text
