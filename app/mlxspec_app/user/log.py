"""The log of the app: errors with their tracebacks, and the delay of frames.

It is a file, because the terminal belongs to the screen. At most two files of a megabyte are kept.
The log never contains text of a chat.
"""

import logging
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
        """Write into a folder, which the first line creates."""
        self._path = folder / NAME
        self._logger: logging.Logger | None = None

    def note(self, message: str) -> None:
        self._write(logging.INFO, message)

    def record(self, event: AnyEvent) -> None:
        """Log an event if it is an error."""
        if isinstance(event, GenerationFailed | LoadFailed | SessionFailed):
            self._write(logging.ERROR, f"{event.message}\n{event.traceback}".rstrip())

    def close(self) -> None:
        """Close the file; safe to call twice."""
        for handler in list(self._logger.handlers) if self._logger is not None else []:
            with suppress(OSError):  # on a full disk the buffer is not empty, and close writes it
                handler.close()
        self._logger = None

    def _write(self, level: int, message: str) -> None:
        try:
            logger = self._logger or self._open()
        except OSError:  # a chat must not fail because of its log
            return
        self._logger = logger
        logger.log(level, message)

    def _open(self) -> logging.Logger:
        from logging.handlers import RotatingFileHandler  # slow to import, and seldom needed

        make_private_folder(self._path.parent)
        make_private_file(self._path)
        handler = RotatingFileHandler(
            self._path, maxBytes=_MOST_BYTES, backupCount=1, encoding="utf-8", errors="replace"
        )
        # the default prints a traceback into the screen when a disk is full
        handler.handleError = lambda record: None  # type: ignore[method-assign]
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
        logger = logging.Logger("mlxspec_app", logging.INFO)
        logger.addHandler(handler)
        return logger
