"""Copying text: `pbcopy` where it reaches the user's own screen, the terminal (OSC 52) elsewhere.

Terminal.app ignores OSC 52, and `pbcopy` over SSH would fill the clipboard of the wrong machine.
"""

import os
import shutil
import subprocess

from textual.app import App


def copy_text(app: App[None], text: str) -> str:
    """Put text on the clipboard and return the route it took, to tell the user."""
    program = shutil.which("pbcopy")
    if program is not None and "SSH_CONNECTION" not in os.environ:
        done = subprocess.run([program], input=text.encode(errors="replace"), check=False)
        if done.returncode == 0:
            return "pbcopy"
    app.copy_to_clipboard(text.encode(errors="replace").decode())
    return "terminal (OSC 52)"
