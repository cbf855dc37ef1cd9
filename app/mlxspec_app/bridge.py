"""The live session: one thread that loads the model, writes every reply and frees the model.

MLX arrays belong to the thread that made them, so one thread does all of it and stays alive for
the whole session. Orders go in through a queue and plain event records come out through a deque:
the thread never waits for the screen, and the screen never waits for the thread. The thread is
no daemon, so it is joined before the process exits.
"""

import gc
import queue
import sys
import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from os import PathLike
from typing import Any, Literal, Protocol

from mlxspec.errors import MlxspecError, TraceError
from mlxspec.events import Event, GenerationFailed, TurnStarted
from mlxspec.proof import Proof
from mlxspec.trace import TraceWriter
from mlxspec_app.session import (
    ChatCleared,
    LoadProgress,
    ProgressCallback,
    ProofFinished,
    ProofProgress,
    ReplyDiscarded,
    Session,
    SessionEvent,
    SessionFailed,
    SessionNotice,
    SessionOpening,
    SessionReady,
)

__all__ = ["ConversationLike", "EngineSession", "Session"]


class ConversationLike(Protocol):
    """The part of a conversation that a session drives."""

    def reply(
        self, text: str, params: Any, *, should_stop: Callable[[], bool] = lambda: False
    ) -> Iterator[Event]:
        """Yield the events of the reply to `text`, `TurnStarted` first."""

    def regenerate(
        self, params: Any, *, should_stop: Callable[[], bool] = lambda: False
    ) -> Iterator[Event]:
        """Yield the events of another reply to the last message."""

    def prove(
        self,
        *,
        should_stop: Callable[[], bool] = lambda: False,
        on_progress: ProgressCallback = lambda done, total: None,
    ) -> Proof:
        """Compare the last reply with plain decoding."""

    def reset(self) -> None:
        """Forget the conversation."""


@dataclass(frozen=True, eq=False)
class _Order:
    """One thing to do, and the flag that ends it."""

    kind: Literal["send", "regenerate", "new_chat", "prove"]
    text: str = ""
    cancel: threading.Event = field(default_factory=threading.Event)


class _ClosedWhileLoading(Exception):
    """Unwinds the loader when the session is closed under it."""


class EngineSession:
    """A session with a model on this machine; see `Session` for its methods.

    Attributes:
        target: Name of the target model, shown until the first reply states it.
        drafter: Name of the drafter, likewise.
    """

    def __init__(
        self,
        open_conversation: Callable[[ProgressCallback], ConversationLike],
        params: Any,
        trace_path: str | PathLike[str] | None = None,
        *,
        target: str = "",
        drafter: str = "",
        adjust: Callable[[Any, str, str], Any] | None = None,
    ) -> None:
        """Prepare a session; nothing is loaded before `start`.

        Args:
            open_conversation: Loads the model, reporting its progress, and returns a
                conversation; called in the engine thread.
            params: Passed on to the conversation with every message.
            trace_path: File that every event is appended to, or None.
            target: Name of the target model, if it is known before loading.
            drafter: Name of the drafter, likewise.
            adjust: Returns `params` with one of them changed, by name and text; None where they
                are fixed.
        """
        self.target = target
        self.drafter = drafter
        self._open_conversation = open_conversation
        self._params = params
        self._adjust = adjust
        self._trace_path = trace_path
        self._trace: TraceWriter | None = None
        self._events: deque[Event | SessionEvent] = deque()
        self._orders: queue.SimpleQueue[_Order | None] = queue.SimpleQueue()
        self._open_orders: list[_Order] = []
        self._lock = threading.Lock()  # guards _open_orders, which both threads change
        self._unheard = ""  # what the conversation refused to take in, to try it again
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="mlxspec-engine", daemon=False)

    @property
    def busy(self) -> bool:
        return bool(self._open_orders)

    def start(self) -> None:
        self._thread.start()

    def send(self, text: str) -> None:
        self._give(_Order("send", text))

    def regenerate(self) -> None:
        self._give(_Order("regenerate"))

    def prove(self) -> None:
        self._give(_Order("prove"))

    def new_chat(self) -> None:
        self._give(_Order("new_chat"))

    def adjust(self, name: str, value: str) -> None:
        if self._adjust is None:
            raise ValueError("the settings of this chat are fixed")
        self._params = self._adjust(self._params, name, value)

    def stop(self) -> None:
        with self._lock:
            for order in self._open_orders:
                order.cancel.set()

    def tell(self, message: str) -> None:
        """Show a notice; may be called from any thread."""
        self._events.append(SessionNotice(message))

    def close(self) -> None:
        self._closing.set()
        self.stop()
        self._orders.put(None)
        if self._thread.ident is not None:
            self._thread.join()

    def drain(self) -> list[Event | SessionEvent]:
        drained = []
        with suppress(IndexError):
            while True:
                drained.append(self._events.popleft())
        return drained

    def _give(self, order: _Order) -> None:
        with self._lock:
            self._open_orders.append(order)
        self._orders.put(order)

    # Everything below runs in the engine thread.

    def _run(self) -> None:
        self._events.append(SessionOpening(self.target, self.drafter))
        try:
            self._open_trace()
            self._serve(self._open_conversation(self._on_progress))
        except _ClosedWhileLoading:
            pass
        except Exception as error:  # the thread's edge: an error becomes a row on the screen
            self._events.append(SessionFailed(_describe(error), traceback.format_exc()))
        finally:
            self._close_trace()
            _leave_mlx()

    def _serve(self, conversation: ConversationLike) -> None:
        gc.collect()
        gc.freeze()  # what the model holds need not be walked by every later collection
        self._events.append(SessionReady())
        while (order := self._orders.get()) is not None and not self._closing.is_set():
            self._carry_out(conversation, order)

    def _carry_out(self, conversation: ConversationLike, order: _Order) -> None:
        last: Event | None = None
        try:
            for last in self._events_of(conversation, order):
                self._unheard = ""
                self._publish(last)
        except Exception as error:  # the thread's edge
            if last is None and order.kind == "send":
                self._unheard = order.text
                self._publish(TurnStarted("user", order.text))
            ts = getattr(last, "ts", 0.0)
            self._publish(GenerationFailed(ts, _describe(error), traceback.format_exc()))
        finally:
            with self._lock:
                self._open_orders.remove(order)

    def _events_of(self, conversation: ConversationLike, order: _Order) -> Iterator[Event]:
        should_stop = order.cancel.is_set
        text = order.text
        if order.kind == "new_chat":
            conversation.reset()
            self._unheard = ""
            self._events.append(ChatCleared())
            return
        if order.kind == "prove":
            self._prove(conversation, order)
            return
        if order.kind == "regenerate":
            self._events.append(ReplyDiscarded())
            text = self._unheard
        if text:
            yield from conversation.reply(text, self._params, should_stop=should_stop)
        else:
            yield from conversation.regenerate(self._params, should_stop=should_stop)

    def _prove(self, conversation: ConversationLike, order: _Order) -> None:
        def show(done: int, total: int) -> None:
            self._events.append(ProofProgress(done, total))

        try:
            proof = conversation.prove(should_stop=order.cancel.is_set, on_progress=show)
        except (ValueError, MlxspecError) as error:
            self._events.append(ProofFinished(None, str(error)))
        else:
            self._events.append(ProofFinished(proof))

    def _publish(self, event: Event) -> None:
        self._events.append(event)
        if self._trace is None:
            return
        try:
            self._trace.write(event)
        except TraceError as error:
            self._events.append(SessionNotice(f"{error}; the trace ends here"))
            self._close_trace()

    def _open_trace(self) -> None:
        if self._trace_path is not None:
            self._trace = TraceWriter(self._trace_path)

    def _close_trace(self) -> None:
        trace, self._trace = self._trace, None
        if trace is not None:
            with suppress(TraceError):  # a full disk was reported when the write failed
                trace.close()

    def _on_progress(self, done: int, total: int) -> None:
        if self._closing.is_set():
            raise _ClosedWhileLoading
        self._events.append(LoadProgress(done, total))


def _leave_mlx() -> None:
    """Destroy this thread's MLX streams: left behind, they can abort the process as it exits.

    They have to be idle, or the process may hang instead.
    """
    mlx = sys.modules.get("mlx.core")  # never imported here: a session may need no MLX
    if mlx is not None:
        mlx.synchronize()
        mlx.clear_streams()


def _describe(error: Exception) -> str:
    """Return what to tell the user: our own errors speak for themselves, others are named."""
    if isinstance(error, MlxspecError):
        return str(error)
    return f"{type(error).__name__}: {error}"
