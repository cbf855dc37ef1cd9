"""Keeps names, paths and addresses out of what is sent.

A report is made of figures; but a device, a library or an error says something in words, and an
error may name a file. What looks like a path is taken out to the next sign that no path holds,
because a folder may have a space in its name: rather a word too much than a name too few.
"""

import getpass
import os
import platform
import re
from pathlib import Path
from typing import Any

_LEAST = 3  # letters of a name worth taking out: shorter ones stand in many words
_ADDRESS = re.compile(r"\b[a-z][a-z0-9+.-]*://[^\s'\"]+", re.IGNORECASE)
_PATH = re.compile(r"(?:^|(?<=[\s'\"(=\[<:]))(?:~|\.{0,2})/[^:,;()'\"<>\n]*", re.MULTILINE)
_WORDS = (_ADDRESS, "<address>"), (_PATH, "<path>")


def scrubbed(value: Any) -> Any:
    """Return what JSON holds, without names of this machine and its user in any text."""
    if isinstance(value, str):
        return _text(value, own_names())
    if isinstance(value, dict):
        return {key: scrubbed(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [scrubbed(inner) for inner in value]
    return value


def own_names() -> set[str]:
    """Return what this machine, its user and their home are called."""
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
