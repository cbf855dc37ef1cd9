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
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Protocol

from mlxspec.errors import WARNING, MlxspecError, TraceError
from mlxspec.params import GenerationParams, SamplingParams
from mlxspec.params.table import ADJUSTABLE
from mlxspec.trace.events import Event
from mlxspec.trace.file import TraceWriter
from mlxspec_app.conversation.session import (
    ChatOpened,
    LoadFailed,
    LoadProgress,
    ModelChoice,
    ProgressCallback,
    SessionEvent,
    SessionFailed,
    SessionNotice,
    SessionOpening,
    SessionReady,
)
from mlxspec_app.sessions.driver import ConversationDriver, ConversationLike, ShouldStop, describe
from mlxspec_app.sessions.no_model import NoModel
from mlxspec_app.sessions.reply_settings import ReplySettings

OpenConversation = Callable[[ModelChoice, ProgressCallback], ConversationLike]
"""Loads models, reports download progress, and returns an empty conversation."""


class LoadedModels(Protocol):
    """Operations on the models opened last; the engine thread calls them."""

    def change_drafter(self, choice: ModelChoice, on_progress: ProgressCallback) -> None:
        """Change the drafter. The cache stays; after an error the old drafter stays too."""

    def note_reply(self, speedup: float, is_sampled: bool) -> str:
        """Record the speed-up of a reply; return an objection to the drafter, or ""."""

    def choose_again(self, sampling: SamplingParams, should_stop: ShouldStop) -> bool:
        """Measure which drafter is fastest, unless stopped; return whether it changed."""

    def release(self) -> None:
        """Drop the models, before others are loaded and at the end."""


class LoadingStoppedError(MlxspecError):
    """The user stopped the download, or closed the session during it."""


@dataclass(frozen=True, eq=False)
class _Order:
    """One task for the thread, and the flag that stops it."""

    act: Callable[[ShouldStop], None]
    cancel: threading.Event = field(default_factory=threading.Event)


class EngineSession:
    """A session with a model on this machine; see `Session` for its methods."""

    def __init__(
        self,
        open_conversation: OpenConversation,
        params: GenerationParams,
        trace_path: str | PathLike[str] | None = None,
        *,
        choice: ModelChoice | None = None,
        default_name: str = "",
        system: str | None = None,
        given: Collection[str] = tuple(ADJUSTABLE),
        models: LoadedModels | None = None,
    ) -> None:
        """Prepare a session; nothing is loaded before `start`.

        Args:
            open_conversation: Called in the engine thread.
            params: The settings of a reply until the user changes them.
            trace_path: File to which every event is appended, or None.
            choice: The first models; None for the default ones.
            default_name: Name of the default model.
            system: System prompt.
            given: Slash words of the settings that the user gave; the others have chat defaults.
            models: The models that `open_conversation` opened last; with None, a change of the
                drafter loads all of them again.
        """
        self._open_conversation, self._models = open_conversation, models
        self._settings = ReplySettings(params, given)
        self._trace_path = trace_path
        self._trace: TraceWriter | None = None
        self._default_name = default_name
        self._choice = choice or ModelChoice()
        self._loaded: ModelChoice | None = None
        self._system = system
        self._driver = ConversationDriver(
            self._publish, note_reply=models.note_reply if models is not None else _no_objection
        )
        self._events: deque[Event | SessionEvent] = deque()
        self._orders: queue.SimpleQueue[_Order | None] = queue.SimpleQueue()
        self._open_orders: list[_Order] = []
        self._lock = threading.Lock()  # guards _open_orders, which both threads change
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="mlxspec-engine", daemon=False)

    @property
    def busy(self) -> bool:
        return bool(self._open_orders)

    @property
    def params(self) -> GenerationParams:
        return self._settings.params

    def start(self) -> None:
        self.load(self._choice)
        self._thread.start()

    def send(self, text: str) -> None:
        self._enqueue(lambda stop: self._driver.reply(text, self._settings.params, stop))

    def regenerate(self) -> None:
        self._enqueue(lambda stop: self._driver.regenerate(self._settings.params, stop))

    def edit(self, turn: int, text: str) -> None:
        self._enqueue(lambda stop: self._driver.edit(turn, text, self._settings.params, stop))

    def prove(self) -> None:
        self._enqueue(self._driver.prove)

    def find_alternatives(self, turn: int, position: int) -> None:
        self._enqueue(lambda stop: self._driver.find_alternatives(turn, position))

    def branch(self, turn: int, position: int, token: int) -> None:
        place = turn, position, token
        self._enqueue(lambda stop: self._driver.branch(*place, self._settings.params, stop))

    def race(self, text: str) -> None:
        self._enqueue(lambda stop: self._driver.race(text, self._settings.params, stop))

    def new_chat(self) -> None:
        self._enqueue(lambda stop: self._driver.new_chat())

    def open_chat(self, chat: ChatOpened) -> None:
        self._enqueue(lambda stop: self._driver.open_chat(chat))

    def set_system(self, text: str) -> None:
        self._enqueue(lambda stop: self._driver.set_system(text))

    def forget_oldest(self, allowed: bool) -> None:
        self._enqueue(lambda stop: self._driver.forget_oldest(allowed))

    def load(self, choice: ModelChoice) -> None:
        self._enqueue(lambda stop: self._load(choice, stop))

    def adjust(self, name: str, value: str) -> None:
        self._settings.adjust(name, value)

    def adjustable(self) -> dict[str, str]:
        return self._settings.adjustable()

    def origins(self) -> dict[str, str]:
        return self._settings.origins()

    def suggest(self, sampling: Mapping[str, float], switches: Collection[str]) -> None:
        """Follow the model that was loaded; see `ReplySettings.suggest`."""
        self._settings.suggest(sampling, switches)

    def stop(self) -> None:
        with self._lock:
            for order in self._open_orders:
                order.cancel.set()

    def notify(self, message: str) -> None:
        self._events.append(SessionNotice(message))

    def say(self, line: str) -> None:
        """Send a line of the library as a notice: trouble if it is a warning, else news."""
        is_trouble = line.startswith(WARNING)
        self._events.append(SessionNotice(line.removeprefix(WARNING), is_trouble))

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

    def _enqueue(self, act: Callable[[ShouldStop], None]) -> None:
        order = _Order(act)
        # First, so that `busy` is true at once, and because the thread removes it at its end.
        with self._lock:
            self._open_orders.append(order)
        self._orders.put(order)

    # Everything below runs in the engine thread.

    def _run(self) -> None:
        try:
            self._open_trace()
            if self._system:
                self._driver.set_system(self._system)
            while (order := self._orders.get()) is not None and not self._closing.is_set():
                self._carry_out(order)
        # The thread's edge: an error becomes a row on the screen, even one that exits the process.
        except (Exception, SystemExit) as error:
            self._events.append(
                SessionFailed(describe(error), traceback.format_exc(), is_over=True)
            )
        finally:
            self._open_orders.clear()
            # drops the model's arrays in the thread that made them
            self._drop_models()
            self._close_trace()
            _leave_mlx()

    def _carry_out(self, order: _Order) -> None:
        def must_yield() -> bool:
            return order.cancel.is_set() or len(self._open_orders) > 1

        try:
            order.act(order.cancel.is_set)
            if objection := self._driver.use_idle_time(must_yield):
                self.say(f"{objection}; the drafters are measured again")
                self._choose_again(must_yield)
        finally:
            with self._lock:
                self._open_orders.remove(order)

    def _choose_again(self, must_yield: ShouldStop) -> None:
        """Switch to another drafter if it is faster, after replies objected to the present one."""
        assert self._models is not None
        assert self._loaded is not None
        choice = self._loaded
        try:
            is_another = self._models.choose_again(self._settings.params.sampling, must_yield)
        except Exception as error:  # the thread's edge: the chat keeps its present drafter
            self.notify(f"the drafters were not measured again: {describe(error)}")
            return
        if is_another:
            self._driver.change_drafter()
            self._events.append(SessionOpening(self._name_of(choice), choice.drafter, choice))
            self._events.append(SessionReady())

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
                self._events.append(SessionFailed(message, trace))
                return
            self._events.append(LoadFailed(choice, message, trace))
            if self._loaded is not None:  # only the drafter was to change; the old one stays
                self._events += [SessionOpening(self._name_of(before), before.drafter, before)]
                self._events.append(SessionReady())
                return
            self._load(before, lambda: False)  # nothing is loaded now, so it fails at most once

    def _open(self, choice: ModelChoice, should_stop: ShouldStop) -> None:
        def show(done: int, total: int) -> None:
            if should_stop():
                raise LoadingStoppedError(_stopped(choice))
            self._events.append(LoadProgress(done, total))

        self._events.append(SessionOpening(self._name_of(choice), choice.drafter, choice))
        if self._models is not None and choice.has_same_target(self._loaded):
            self._models.change_drafter(choice, show)
            self._driver.change_drafter()
            self._loaded = choice
            self._events.append(SessionReady())
            return
        self._drop_models()  # two targets at once may not fit in memory
        self._loaded = None
        _free_unused()
        self._driver.switch_to(self._open_conversation(choice, show))
        self._loaded = choice
        self._events.append(SessionReady())

    def _drop_models(self) -> None:
        self._driver.switch_to(NoModel())
        if self._models is not None:
            self._models.release()

    def _name_of(self, choice: ModelChoice) -> str:
        return _name_of_source(choice.model) or self._default_name

    def _publish(self, event: Event | SessionEvent) -> None:
        self._events.append(event)
        if self._trace is None or not isinstance(event, Event):
            return
        try:
            self._trace.write(event)
        except TraceError as error:
            self.notify(f"{error}; the trace ends here")
            self._close_trace()

    def _open_trace(self) -> None:
        if self._trace_path is not None:
            self._trace = TraceWriter(self._trace_path)

    def _close_trace(self) -> None:
        trace, self._trace = self._trace, None
        if trace is not None:
            with suppress(TraceError):  # a full disk was reported when the write failed
                trace.close()


def _no_objection(speedup: float, is_sampled: bool) -> str:
    return ""


def _name_of_source(source: str) -> str:
    """Return the name of a model once loaded: for a path, that of its file or folder."""
    path = Path(source)
    if not path.is_absolute():
        return source
    return path.stem if path.suffix == ".gguf" else path.name


def _stopped(choice: ModelChoice) -> str:
    """Return what remains of a stopped download: complete files from the hub, nothing from pip."""
    if choice.model:
        return "the download was stopped; finished files are kept"
    return "the download was stopped; the next one starts from the beginning"


def _free_unused() -> None:
    """Free the memory that MLX still holds of a model without references."""
    gc.collect()
    mlx = sys.modules.get("mlx.core")
    if mlx is not None:
        mlx.clear_cache()


def _leave_mlx() -> None:
    """Destroy this thread's MLX streams, which can otherwise abort the process at its exit.

    The streams must be idle first, or the process may hang instead.
    """
    mlx = sys.modules.get("mlx.core")  # never imported here: a session may need no MLX
    if mlx is not None:
        mlx.synchronize()
        mlx.clear_streams()
