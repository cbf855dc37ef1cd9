"""Traces of replies: a file for each reply in one folder, deleted together with the chat."""

import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

from mlxspec.errors import TraceError
from mlxspec.trace.events import Event
from mlxspec.trace.file import TraceWriter
from mlxspec_app.user.files import make_private_file, make_private_folder


class ReplyTraces:
    """Writes the trace of one reply at a time; an error ends the trace, never the reply."""

    def __init__(self, folder: Path, notify: Callable[[str], None]) -> None:
        """Write into a folder, which the first trace creates; `notify` reports a failure."""
        self._folder = folder
        self._notify = notify
        self._file: TraceWriter | None = None
        self._name = ""
        self._before: list[Event] = []
        self._ended: Path | None = None
        self._has_failed = False

    def begin(self, number: int, events: Iterable[Event]) -> str:
        """Start the trace of a reply by its number; return its name. The next event creates it.

        `events` precede the reply and belong to it: the turn that it answers.
        """
        self.end()
        self._name = f"{time.strftime('%Y%m%d-%H%M%S')}-{number}.jsonl"
        self._before = list(events)
        return self._name

    def write(self, event: Event) -> None:
        try:
            if self._name and self._file is None:
                make_private_folder(self._folder)
                make_private_file(self._folder / self._name)
                self._file = TraceWriter(self._folder / self._name)
            for each in (*self._before, event):
                if self._file is not None:
                    self._file.write(each)
            self._before = []
        except (OSError, TraceError) as error:
            self.end()
            self._fail(f"{error}; the trace of this reply ends here")

    def add_to_ended(self, event: Event) -> None:
        """Append an event to the trace that ended last, if no other has started since."""
        if self._ended is None:
            return
        try:
            with TraceWriter(self._ended) as file:
                file.write(event)
        except TraceError as error:
            self._fail(str(error))

    def end(self) -> None:
        file, self._file = self._file, None
        self._ended = file.path if file is not None else None
        self._name, self._before = "", []
        with suppress(TraceError):  # a full disk was reported when the write failed
            if file is not None:
                file.close()

    def remove(self, names: Iterable[str]) -> None:
        for name in names:
            with suppress(OSError):  # a file that is gone already needs no removal
                (self._folder / Path(name).name).unlink()

    def _fail(self, message: str) -> None:
        if not self._has_failed:  # report it once: the next reply fails for the same reason
            self._notify(message)
        self._has_failed = True
