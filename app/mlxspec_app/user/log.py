"""The log of the app: errors with their tracebacks.

It is a file, because the terminal belongs to the screen. At most two files of a megabyte are kept.
The log never contains text of a chat.
"""

import time
from contextlib import suppress
from pathlib import Path

from mlxspec.trace.events import GenerationFailed
from mlxspec_app.conversation.events import AnyEvent, LoadFailed, SessionFailed
from mlxspec_app.user.files import make_private_file, make_private_folder

NAME = "app.log"
_MOST_BYTES = 1_000_000


class AppLog:
    """Writes the log; if that fails the app continues without a log."""

    def __init__(self, folder: Path) -> None:
        """Write into a folder, which the first error creates."""
        self._path = folder / NAME

    def record(self, event: AnyEvent) -> None:
        if isinstance(event, GenerationFailed | LoadFailed | SessionFailed):
            with suppress(OSError):  # a chat must not fail because of its log
                self._write(f"{event.message}\n{event.traceback}".rstrip())

    def _write(self, message: str) -> None:
        make_private_folder(self._path.parent)
        if self._path.is_file() and self._path.stat().st_size > _MOST_BYTES:
            self._path.replace(self._path.with_name(f"{NAME}.1"))
        make_private_file(self._path)
        with self._path.open("a", encoding="utf-8", errors="replace") as file:
            file.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} ERROR {message}\n")
