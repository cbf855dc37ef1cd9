"""The thread that writes the store, so that neither the screen nor the engine waits for a disk.

Events go in without blocking and are written in order. What cannot be written, on a full disk for
one, waits and is tried again: the chat goes on, the user is told once, and nothing is skipped.
Questions go the same way, so their answers are about everything recorded before them.
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

from mlxspec.trace.events import Event
from mlxspec_app.conversation.session import SessionEvent
from mlxspec_app.store.errors import DamagedStoreError, GoneError, StoreError
from mlxspec_app.store.opening import open_for_writing
from mlxspec_app.store.presence import present
from mlxspec_app.store.recorder import Recorder
from mlxspec_app.store.traces import TraceKeeper
from mlxspec_app.store.writer import Writer

RETRY_S = 1.0  # between two tries to write what could not be written

T = TypeVar("T")


@dataclass(frozen=True)
class _Question:
    ask: Callable[[Recorder], Any]
    answer: "Future[Any]"


@dataclass(frozen=True)
class _NoNews:
    """Nothing happened for a while, in which something waited to be written."""


_Item = Event | SessionEvent | _Question | _NoNews


class StoreThread:
    """Keeps a session's chat, from the moment something is said in it."""

    def __init__(
        self,
        path: Path,
        say: Callable[[str], None],
        traces: Path | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Prepare; no file is touched before `start`.

        Args:
            path: The store.
            say: Told what the user should know, from the thread.
            traces: Folder for the traces of the replies, or None to keep none.
            clock: Returns the time in seconds.
        """
        self._path = path
        self._say = say
        self._keeper = TraceKeeper(traces, say) if traces is not None else None
        self._clock = clock
        self._queue: queue.SimpleQueue[_Item | None] = queue.SimpleQueue()
        self._waiting: deque[Event | SessionEvent] = deque()
        self._retry_at: float | None = None
        self._thread = threading.Thread(target=self._run, name="mlxspec-store", daemon=False)

    def start(self) -> None:
        """Open the store; where that fails the user is told, and nothing is kept."""
        self._thread.start()

    def record(self, event: Event | SessionEvent) -> None:
        """Keep what happened; never blocks and never raises."""
        self._queue.put(event)

    def ask(self, question: Callable[[Recorder], T]) -> "Future[T]":
        """Have a question answered, or a change made, in the thread.

        Args:
            question: Given the recorder; must hand out plain records only.

        Returns:
            The answer, or the `StoreError` that it met; never ready if the thread is not started.
        """
        answer: Future[T] = Future()
        self._queue.put(_Question(question, answer))
        return answer

    def close(self) -> None:
        """Write what is left, remove deleted chats for good, and end; safe to call twice."""
        self._queue.put(None)
        if self._thread.ident is not None:
            self._thread.join()

    # Everything below runs in the thread.

    def _run(self) -> None:
        try:
            writer = Writer(open_for_writing(self._path, self._say))
            with present(self._path) as is_alone:
                recorder = Recorder(writer, self._keeper, is_alone=is_alone)
                try:
                    self._serve(recorder)
                except Exception:
                    with suppress(StoreError):  # the reason why it ends is told below
                        recorder.close()
                    raise
                self._leave(recorder)
        except StoreError as error:
            self._refuse(error)
        except Exception as error:  # the thread's edge: the chat goes on without a store
            self._refuse(StoreError(f"the store of chats broke: {type(error).__name__}: {error}"))

    def _serve(self, recorder: Recorder) -> None:
        self._tidy(recorder)
        while (item := self._next()) is not None:
            if isinstance(item, _Question):
                self._write(recorder)
                _answer(item, recorder)
                continue
            if not isinstance(item, _NoNews):
                self._waiting.append(item)
            if self._retry_at is None or self._clock() >= self._retry_at:
                self._write(recorder)
        self._write(recorder)

    def _next(self) -> _Item | None:
        try:
            return self._queue.get(timeout=RETRY_S if self._waiting else None)
        except queue.Empty:
            return _NoNews()

    def _leave(self, recorder: Recorder) -> None:
        if self._waiting:
            self._say("what was said last could not be written to the store of chats: it is lost")
        try:
            recorder.close()
        except StoreError as error:
            self._say(str(error))

    def _tidy(self, recorder: Recorder) -> None:
        try:
            recorder.writer.fold_pieces()
        except DamagedStoreError:
            raise
        except StoreError as error:
            self._put_off(error)

    def _write(self, recorder: Recorder) -> None:
        while self._waiting:
            try:
                recorder.apply(self._waiting[0])
            except DamagedStoreError:
                raise
            except GoneError:
                recorder.new_chat()  # what this was about is gone: go on with the next
            except StoreError as error:
                self._put_off(error)
                return
            self._waiting.popleft()
            if self._retry_at is not None and not self._waiting:
                self._retry_at = None
                self._say("the store of chats works again; nothing that was said is missing in it")

    def _put_off(self, error: StoreError) -> None:
        if self._retry_at is None:
            self._say(f"{error}; the chat goes on, and is written down as soon as that works")
        self._retry_at = self._clock() + RETRY_S

    def _refuse(self, error: StoreError) -> None:
        self._say(f"{error}; this chat is not kept")
        while (item := self._queue.get()) is not None:
            if isinstance(item, _Question) and item.answer.set_running_or_notify_cancel():
                item.answer.set_exception(error)


def _answer(question: _Question, recorder: Recorder) -> None:
    if not question.answer.set_running_or_notify_cancel():
        return
    try:
        question.answer.set_result(question.ask(recorder))
    except Exception as error:  # the thread's edge: it is raised where the answer is awaited
        question.answer.set_exception(error)
