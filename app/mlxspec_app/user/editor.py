"""Lets the user write a text in their own editor: $VISUAL, else $EDITOR."""

import os
import shlex
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path


class EditorError(Exception):
    """No editor is set, or it failed; the text has not changed."""


def edit_text(text: str, environment: Mapping[str, str] = os.environ) -> str:
    """Return the text as saved in the editor that `environment` names; waits until it ends."""
    named = environment.get("VISUAL") or environment.get("EDITOR") or ""
    with tempfile.TemporaryDirectory(prefix="mlxspec-") as folder:
        path = Path(folder) / "message.md"
        path.write_text(text, encoding="utf-8", errors="replace")
        try:
            command = shlex.split(named)
            if not command:
                raise EditorError("no editor is set: set VISUAL or EDITOR, such as EDITOR=nano")
            code = subprocess.run([*command, str(path)], check=False).returncode
        except (OSError, ValueError) as error:
            raise EditorError(f"the editor {named!r} cannot be started: {error}") from error
        if code:
            raise EditorError(f"{named} ended with code {code}: the text is unchanged")
        try:
            # Accept any encoding: the user has no other copy of this text.
            return path.read_text(encoding="utf-8-sig", errors="replace").rstrip("\n")
        except OSError as error:
            raise EditorError(f"what {named} wrote cannot be read: {error}") from error
