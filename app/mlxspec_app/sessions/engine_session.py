"""The live session: one thread that loads the model, generates every reply and frees the model.

MLX arrays belong to the thread that made them, so one thread does all of this and lives as long as
the session. Orders enter through a queue, and plain event records leave through a deque: neither
the thread nor the screen waits for the other. The thread is not a daemon, so the process joins it
before it exits.
"""

import gc
import queue
import sys
import threading
import traceback
from collections import deque
from collections.abc import Collection, Generator
from contextlib import suppress
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from mlxspec.errors import WARNING, MlxspecError, TraceError
from mlxspec.params import GenerationParams, SamplingParams
from mlxspec.params.table import ADJUSTABLE
from mlxspec.trace.events import Event
from mlxspec.trace.file import TraceWriter
from mlxspec_app.conversation import events
from mlxspec_app.conversation.events import AnyEvent, ModelChoice, TableProgress
from mlxspec_app.conversation.orders import Load, MakeTable, Order, Stop
from mlxspec_app.sessions.driver import (
    ConversationDriver,
    NoModel,
    ProgressCallback,
    ShouldStop,
    describe,
)
from mlxspec_app.sessions.session import ReplySettings

if TYPE_CHECKING:
    from mlxspec import Conversation

_FROM_THE_START = "the next one starts from the beginning"


class Models(Protocol):
    """Opens models and changes them; the engine thread calls all of this."""

    def open_conversation(
        self, choice: ModelChoice, on_progress: ProgressCallback
    ) -> "Conversation":
        """Load models, report download progress, and return an empty conversation."""

    def change_drafter(self, choice: ModelChoice, on_progress: ProgressCallback) -> None:
        """Change the drafter. The cache stays; after an error the old drafter stays too."""

    def note_reply(self, speedup: float, is_sampled: bool) -> str:
        """Record the speed-up of a reply; return an objection to the drafter, or ""."""

    def choose_again(self, sampling: SamplingParams, should_stop: ShouldStop) -> bool:
        """Measure which drafter is fastest, unless stopped; return whether it changed."""

    def make_table(self) -> Generator[TableProgress]:
        """Make a table of the model's own text, step by step, and use it if it drafts better."""

    def release(self) -> None:
        """Drop the models, before others are loaded and at the end."""


@dataclass(frozen=True, eq=False)
class _Task:
    """An order for the thread, and the flag that stops it."""

    order: Order
    cancel: threading.Event = field(default_factory=threading.Event)


class EngineSession:
    """A session with a model on this machine; `Session` documents its methods."""

    def __init__(
        self,
        models: Models,
        params: GenerationParams,
        trace_path: str | PathLike[str] | None = None,
        *,
        choice: ModelChoice | None = None,
        default_name: str = "",
        system: str | None = None,
        given: Collection[str] = tuple(ADJUSTABLE),
    ) -> None:
        """Prepare a session; nothing is loaded before `start`.

        Every event is appended to the file `trace_path`. `choice` are the first models. `given` are
        the slash words of the settings that the user gave; the others have chat defaults.
        """
        self.settings = ReplySettings(params, given)
        self._models, self._default_name, self._system = models, default_name, system
        self._trace_path = trace_path
        self._trace: TraceWriter | None = None
        self._choice = choice or ModelChoice()
        self._loaded: ModelChoice | None = None
        self._table: Generator[TableProgress] | None = None  # in the making
        self._driver = ConversationDriver(self._publish)
        self._events: deque[AnyEvent] = deque()
        self._queue: queue.SimpleQueue[_Task | None] = queue.SimpleQueue()
        self._open_tasks: list[_Task] = []
        self._lock = threading.Lock()  # guards _open_tasks, which both threads change
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="mlxspec-engine", daemon=False)

    @property
    def busy(self) -> bool:
        return bool(self._open_tasks)

    def start(self) -> None:
        self.send(Load(self._choice))
        self._thread.start()

    def send(self, order: Order) -> None:
        if isinstance(order, Stop):
            with self._lock:
                for open_task in self._open_tasks:
                    open_task.cancel.set()
            return
        task = _Task(order)
        # First, so that `busy` is true at once, and because the thread removes it at its end.
        with self._lock:
            self._open_tasks.append(task)
        self._queue.put(task)

    def notify(self, message: str) -> None:
        self._events.append(events.SessionNotice(message))

    def say(self, line: str) -> None:
        """Send a line of the library as a notice: trouble if it is a warning, else news."""
        is_trouble = line.startswith(WARNING)
        self._events.append(events.SessionNotice(line.removeprefix(WARNING), is_trouble))

    def close(self) -> None:
        self._closing.set()
        self.send(Stop())
        self._queue.put(None)
        if self._thread.ident is not None:
            self._thread.join()

    def drain(self) -> list[AnyEvent]:
        drained = []
        with suppress(IndexError):
            while True:
                drained.append(self._events.popleft())
        return drained

    # Everything below runs in the engine thread.

    def _run(self) -> None:
        try:
            if self._trace_path is not None:
                self._trace = TraceWriter(self._trace_path)
            if self._system:
                self._driver.set_system(self._system)
            while (task := self._next_task()) is not None and not self._closing.is_set():
                self._carry_out(task)
        # The thread's edge: an error becomes a row on the screen, even one that exits the process.
        except (Exception, SystemExit) as error:
            self._events.append(
                events.SessionFailed(describe(error), traceback.format_exc(), is_over=True)
            )
        finally:
            self._open_tasks.clear()
            # drops the model's arrays in the thread that made them
            self._drop_models()
            self._close_trace()
            _leave_mlx()

    def _next_task(self) -> _Task | None:
        while self._table is not None and self._queue.empty():
            self._make_table(self._table)
        return self._queue.get()

    def _make_table(self, table: Generator[TableProgress]) -> None:
        """Take one step towards a table."""
        try:
            self._events.append(next(table))
        except StopIteration:
            self._stop_table()
        except Exception as error:  # the thread's edge: the chat goes on without the table
            self._stop_table()
            self.notify(f"no table was made: {describe(error)}")

    def _stop_table(self) -> None:
        if self._table is not None:
            self._table.close()
            self._events.append(TableProgress(None))
        self._table = None

    def _carry_out(self, task: _Task) -> None:
        should_stop = task.cancel.is_set

        def must_yield() -> bool:
            return should_stop() or len(self._open_tasks) > 1

        try:
            if isinstance(task.order, Load):
                self._load(task.order.choice, should_stop)
            elif isinstance(task.order, MakeTable):
                self._begin_or_stop_table()
            else:
                self._driver.carry_out(task.order, self.settings.params, should_stop)
            speedup = self._driver.use_idle_time(must_yield)
            if speedup is not None:
                is_sampled = self._driver.meter.is_sampled
                if objection := self._models.note_reply(speedup, is_sampled):
                    self.say(f"{objection}; the drafters are measured again")
                    self._choose_again(must_yield)
        finally:
            with self._lock:
                self._open_tasks.remove(task)

    def _choose_again(self, must_yield: ShouldStop) -> None:
        """Switch to another drafter if it is faster, after replies objected to the present one."""
        assert self._loaded is not None
        try:
            is_another = self._models.choose_again(self.settings.params.sampling, must_yield)
        except Exception as error:  # the thread's edge: the chat keeps its present drafter
            self.notify(f"the drafters were not measured again: {describe(error)}")
            return
        if is_another:
            self._driver.meter.forget_replies()
            self._tell(self._loaded, is_ready=True)

    def _load(self, choice: ModelChoice, should_stop: ShouldStop) -> None:
        """Load other models; if that fails, load the present ones again."""
        before = self._loaded
        try:
            self._open(choice, should_stop)
        except (Exception, SystemExit) as error:  # the thread's edge: a model's files hold code
            if self._closing.is_set():
                return
            message, trace = describe(error), traceback.format_exc()
            if before is None:
                self._events.append(events.SessionFailed(message, trace))
                return
            self._events.append(events.LoadFailed(choice, message, trace))
            if self._loaded is not None:  # only the drafter was to change; the old one stays
                self._tell(before, is_ready=True)
                return
            self._load(before, lambda: False)  # nothing is loaded now, so it fails at most once

    def _open(self, choice: ModelChoice, should_stop: ShouldStop) -> None:
        def show(done: int, total: int) -> None:
            if should_stop():  # of the hub complete files remain, of pip nothing
                kept = "finished files are kept" if choice.model else _FROM_THE_START
                raise MlxspecError(f"the download was stopped; {kept}")
            self._events.append(events.LoadProgress(done, total))

        self._tell(choice, is_ready=False)
        if choice.has_same_target(self._loaded):
            self._models.change_drafter(choice, show)
            self._driver.meter.forget_replies()
        else:
            self._drop_models()  # two targets at once may not fit in memory
            self._loaded = None
            gc.collect()
            if mlx := sys.modules.get("mlx.core"):  # frees what it still holds of that model
                mlx.clear_cache()
            self._driver.switch_to(self._models.open_conversation(choice, show))
        self._loaded = choice
        self._events.append(events.SessionReady())

    def _begin_or_stop_table(self) -> None:
        if self._table is not None:
            self._stop_table()
        elif self._loaded is not None:
            self._table = self._models.make_table()
            self.say("the model writes text of its own while nobody asks: Ctrl+O, t stops it")

    def _drop_models(self) -> None:
        self._stop_table()
        self._driver.switch_to(NoModel())
        self._models.release()

    def _tell(self, choice: ModelChoice, *, is_ready: bool) -> None:
        """Say which models are being loaded, or are loaded; a path is named by its last part."""
        name, path = choice.model or self._default_name, Path(choice.model)
        if path.is_absolute():
            name = path.stem if path.suffix == ".gguf" else path.name
        self._events.append(events.SessionOpening(name, choice.drafter, choice))
        if is_ready:
            self._events.append(events.SessionReady())

    def _publish(self, event: AnyEvent) -> None:
        self._events.append(event)
        if self._trace is None or not isinstance(event, Event):
            return
        try:
            self._trace.write(event)
        except TraceError as error:
            self.notify(f"{error}; the trace ends here")
            self._close_trace()

    def _close_trace(self) -> None:
        trace, self._trace = self._trace, None
        if trace is not None:
            with suppress(TraceError):  # a full disk was reported when the write failed
                trace.close()


def _leave_mlx() -> None:
    """Destroy this thread's MLX streams, which can otherwise abort the process at its exit.

    The streams must be idle first, or the process may hang instead.
    """
    if mlx := sys.modules.get("mlx.core"):  # never imported here: a session may need no MLX
        mlx.synchronize()
        mlx.clear_streams()
