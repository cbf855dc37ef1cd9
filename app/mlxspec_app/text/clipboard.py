"""Copies text to the clipboard: with `pbcopy` on the user's Mac, else by the terminal (OSC 52).

`pbcopy` reports success, but over SSH it would fill the clipboard of the wrong machine. A terminal
never answers to OSC 52, and some ignore it, such as Terminal.app. So the notice to the user does
not promise that the text arrived.
"""

import os
import shutil
import subprocess
from typing import NamedTuple

from textual.app import App

_PATIENCE_S = 2.0
_UTF_8 = "en_US.UTF-8"  # pbcopy reads its input in the encoding of the locale


class Copied(NamedTuple):
    """The notice after a copy, shown for `seconds`; `route` is the method and its limits."""

    title: str
    route: str
    seconds: float


def copy_text(app: App[None], text: str) -> Copied:
    """Copy text to the clipboard and return the notice for the user."""
    data = text.encode(errors="replace")
    if "SSH_CONNECTION" not in os.environ and _pbcopy(data):
        return Copied("Copied", "by pbcopy", 2)
    app.copy_to_clipboard(data.decode())
    limits = "by OSC 52; not every terminal accepts it, Terminal.app does not"
    return Copied("Sent to the terminal", limits, 4)


def _pbcopy(data: bytes) -> bool:
    program = shutil.which("pbcopy")
    if program is None:
        return False
    locale = {**os.environ, "LC_ALL": _UTF_8}
    try:
        done = subprocess.run(
            [program], input=data, env=locale, timeout=_PATIENCE_S, check=False, capture_output=True
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0
