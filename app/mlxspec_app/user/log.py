"""The log of the app: errors with their tracebacks, and how well the screen kept up.

It is a file of its own, since the terminal belongs to the screen; two files of at most a megabyte
are kept. Nothing that was said goes into it.
"""

import logging
from contextlib import suppress
from pathlib import Path

from mlxspec.trace.events import Event, GenerationFailed
from mlxspec_app.conversation.session import LoadFailed, SessionEvent, SessionFailed
from mlxspec_app.user.private import make_private_file, make_private_folder

NAME = "app.log"
_MOST_BYTES = 1_000_000


class AppLog:
    """Writes the log; where that is not possible the app does without."""

    def __init__(self, folder: Path) -> None:
        """Write into a folder, which is made with the first line.

        Args:
            folder: Where the log lies.
        """
        self._path = folder / NAME
        self._logger: logging.Logger | None = None

    def note(self, message: str) -> None:
        """Write a line."""
        self._write(logging.INFO, message)

    def take_in(self, event: Event | SessionEvent) -> None:
        """Write down what went wrong, if something did."""
        if isinstance(event, GenerationFailed | LoadFailed | SessionFailed):
            self._write(logging.ERROR, f"{event.message}\n{event.traceback}".rstrip())

    def close(self) -> None:
        """Close the file; safe to call twice."""
        for handler in list(self._logger.handlers) if self._logger is not None else []:
            with suppress(OSError):  # what a full disk refused is still waiting to be written
                handler.close()
        self._logger = None

    def _write(self, level: int, message: str) -> None:
        try:
            logger = self._logger or self._open()
        except OSError:  # a chat is worth more than its log
            return
        self._logger = logger
        logger.log(level, message)

    def _open(self) -> logging.Logger:
        from logging.handlers import RotatingFileHandler  # only those who log wait for it

        make_private_folder(self._path.parent)
        make_private_file(self._path)
        handler = RotatingFileHandler(
            self._path, maxBytes=_MOST_BYTES, backupCount=1, encoding="utf-8", errors="replace"
        )
        # by itself it would print a traceback where a disk is full
        handler.handleError = lambda record: None  # type: ignore[method-assign]
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
        logger = logging.Logger("mlxspec_app", logging.INFO)
        logger.addHandler(handler)
        return logger
