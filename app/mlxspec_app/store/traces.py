"""The traces of replies: one file each in a folder, named by the store, removed with their chat."""

import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

from mlxspec.errors import TraceError
from mlxspec.trace.events import Event
from mlxspec.trace.file import TraceWriter
from mlxspec_app.user.private import make_private_file, make_private_folder


class TraceKeeper:
    """Writes the trace of one reply at a time; what goes wrong costs the trace, not the reply."""

    def __init__(self, folder: Path, say: Callable[[str], None]) -> None:
        """Write into a folder, which is made when the first trace is.

        Args:
            folder: Where the traces lie.
            say: Told when a trace could not be written.
        """
        self._folder = folder
        self._say = say
        self._file: TraceWriter | None = None
        self._name = ""
        self._before: list[Event] = []
        self._ended: Path | None = None
        self._has_failed = False

    def begin(self, number: int, events: Iterable[Event]) -> str:
        """Start a trace and return the name of its file, which appears with the next event.

        Args:
            number: Number of the reply in the store.
            events: What belongs to the reply already: the turn that it answers.
        """
        self.end()
        self._name = f"{time.strftime('%Y%m%d-%H%M%S')}-{number}.jsonl"
        self._before = list(events)
        return self._name

    def write(self, event: Event) -> None:
        """Append an event, if a trace was begun."""
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
        """Append what came after the end of the last trace, if none was begun since."""
        if self._ended is None:
            return
        try:
            with TraceWriter(self._ended) as file:
                file.write(event)
        except TraceError as error:
            self._fail(str(error))

    def end(self) -> None:
        """Close the trace."""
        file, self._file = self._file, None
        self._ended = file.path if file is not None else None
        self._name, self._before = "", []
        with suppress(TraceError):  # a full disk was reported when the write failed
            if file is not None:
                file.close()

    def remove(self, names: Iterable[str]) -> None:
        """Delete traces."""
        for name in names:
            with suppress(OSError):  # one that is gone already is what was wanted
                (self._folder / Path(name).name).unlink()

    def _fail(self, message: str) -> None:
        if not self._has_failed:  # once is enough: the next reply would fail alike
            self._say(message)
        self._has_failed = True
