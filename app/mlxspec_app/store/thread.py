"""The thread that writes the store, so that neither the screen nor the engine waits for a disk.

Events and queries enter one queue and are handled in order. An event that cannot be written, for
example on a full disk, waits, and the thread retries: the chat continues, the user gets one notice,
and no event is skipped.
"""

import queue
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from mlxspec_app.conversation.events import AnyEvent
from mlxspec_app.store.database import open_for_writing
from mlxspec_app.store.errors import DamagedStoreError, GoneError, StoreError
from mlxspec_app.store.recorder import Recorder
from mlxspec_app.store.traces import ReplyTraces
from mlxspec_app.store.writer import Writer

RETRY_S = 1.0  # seconds between two attempts to write after an error

T = TypeVar("T")


@dataclass(frozen=True)
class _Query:
    run: Callable[[Recorder], Any]
    answer: "Future[Any]"

    def answer_from(self, recorder: Recorder) -> None:
        if self.answer.set_running_or_notify_cancel():
            try:
                self.answer.set_result(self.run(recorder))
            except Exception as error:  # the thread's edge: a reader of the future raises it
                self.answer.set_exception(error)


_Item = AnyEvent | _Query


class StoreThread:
    """Stores the chat of a session, from its first message on."""

    def __init__(
        self,
        path: Path,
        traces: Path,
        notify: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
        *,
        rows: Path | None = None,
    ) -> None:
        """Set up the thread; it opens no file before `start`.

        `traces` and `rows` are folders. `notify` is called in the thread with texts for the user.
        """
        self._path = path
        self._notify, self._rows = notify, rows
        self._traces = ReplyTraces(traces, notify)
        self._clock = clock
        self._queue: queue.SimpleQueue[_Item | None] = queue.SimpleQueue()
        self._waiting: deque[AnyEvent] = deque()
        self._retry_at: float | None = None
        self._thread = threading.Thread(target=self._run, name="mlxspec-store", daemon=False)

    def start(self) -> None:
        """Open the store; on failure the user gets a message, and nothing is stored."""
        self._thread.start()

    def record(self, event: AnyEvent) -> None:
        """Put an event into the queue; never blocks and never raises."""
        self._queue.put(event)

    def submit(self, query: Callable[[Recorder], T]) -> "Future[T]":
        """Run a query or a change in the thread; the future holds the answer or a `StoreError`.

        It never completes if the thread was not started.
        """
        answer: Future[T] = Future()
        self._queue.put(_Query(query, answer))
        return answer

    def close(self) -> None:
        """Write the waiting events, purge deleted chats and end the thread; safe to call twice."""
        self._queue.put(None)
        if self._thread.ident is not None:
            self._thread.join()

    # Everything below runs in the thread.

    def _run(self) -> None:
        try:
            writer = Writer(open_for_writing(self._path, self._notify))
            recorder = Recorder(writer, self._traces, self._rows)
            try:
                self._serve(recorder)
            except Exception:
                with suppress(StoreError):  # the first error is reported below
                    recorder.close()
                raise
            self._leave(recorder)
        except StoreError as error:
            self._refuse(error)
        except Exception as error:  # the thread's edge: the chat continues without a store
            self._refuse(StoreError(f"the chat store failed: {type(error).__name__}: {error}"))

    def _serve(self, recorder: Recorder) -> None:
        try:
            recorder.writer.fold_pieces()
        except DamagedStoreError:
            raise
        except StoreError as error:
            self._retry_later(error)
        while (item := self._next(recorder)) is not None:
            if isinstance(item, _Query):
                self._write(recorder)
                item.answer_from(recorder)
            else:
                self._waiting.append(item)
                self._write_if_due(recorder)
        self._write(recorder)

    def _next(self, recorder: Recorder) -> _Item | None:
        while True:
            with suppress(queue.Empty):
                return self._queue.get(timeout=RETRY_S if self._waiting else None)
            self._write_if_due(recorder)  # no news, but events wait

    def _write_if_due(self, recorder: Recorder) -> None:
        if self._retry_at is None or self._clock() >= self._retry_at:
            self._write(recorder)

    def _leave(self, recorder: Recorder) -> None:
        if self._waiting:
            self._notify("the last messages could not be written to the chat store: they are lost")
        try:
            recorder.close()
        except StoreError as error:
            self._notify(str(error))

    def _write(self, recorder: Recorder) -> None:
        while self._waiting:
            try:
                recorder.apply(self._waiting[0])
            except DamagedStoreError:
                raise
            except GoneError:
                recorder.new_chat()  # the chat of this event was deleted: start a new one
            except StoreError as error:
                self._retry_later(error)
                return
            self._waiting.popleft()
            if self._retry_at is not None and not self._waiting:
                self._retry_at = None
                self._notify("the chat store works again; no message was lost")

    def _retry_later(self, error: StoreError) -> None:
        if self._retry_at is None:
            self._notify(f"{error}; the chat continues, and is saved as soon as that works")
        self._retry_at = self._clock() + RETRY_S

    def _refuse(self, error: StoreError) -> None:
        self._notify(f"{error}; this chat is not saved")
        while (item := self._queue.get()) is not None:
            if isinstance(item, _Query) and item.answer.set_running_or_notify_cancel():
                item.answer.set_exception(error)
