"""The one thread that computes: it loads models and runs the rounds of all replies.

Requests send it orders through a queue and receive events through a callback. Neither side waits
for the other: a slow client delays only its own events.
"""

import logging
import queue
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import mlx.core as mx

from mlxspec.device.backend import values
from mlxspec.device.memory import give_back_memory
from mlxspec.loading.exactness import exact_form
from mlxspec.reply.job import Job
from mlxspec.reply.reply import Reply
from mlxspec.trace.events import Event, GenerationFailed, GenerationFinished
from mlxspec_server.body import Refusal
from mlxspec_server.pieces import TokenLogprob
from mlxspec_server.shelf import Loaded, Offer, Shelf

_STOPS = "the server stops"
_IDLE_S = 2.0  # idle time after which freed memory is returned
_BUSY_S = 60.0  # interval between two returns while replies are written
_log = logging.getLogger(__name__)
_told = logging.getLogger("uvicorn.error")  # whose lines of any level the server shows

Deliver = Callable[[Event, Sequence[TokenLogprob]], None]
"""Called in the engine thread with an event and the logprobs of its tokens. It must not block."""

Watch = Callable[[str, str, Event], None]
"""Called with the model's name, the reply's name, and an event of the reply."""


@dataclass(eq=False)
class Ticket:
    """One reply that a request waits for.

    Any thread may set `is_cancelled`. The reply then ends before its next round.
    """

    name: str
    job: Job
    deliver: Deliver
    num_logprobs: int | None = None
    is_cancelled: threading.Event = field(default_factory=threading.Event)
    error: Exception | None = None  # the error that ended this reply alone, if there was one
    _logprobs: list[TokenLogprob] = field(default_factory=list)

    def tell(self, event: Event) -> None:
        logprobs: list[TokenLogprob] = []
        if hasattr(event, "emit"):
            logprobs, self._logprobs = self._logprobs, []
        self.deliver(event, logprobs)

    def note(self, tokens: Sequence[int], logits: Any) -> None:
        logprobs = logits - mx.logsumexp(logits, axis=-1, keepdims=True)
        own = mx.take_along_axis(logprobs, mx.array(list(tokens))[:, None], axis=-1)[:, 0]
        best = mx.argsort(-logprobs, axis=-1)[:, : self.num_logprobs]
        found = mx.take_along_axis(logprobs, best, axis=-1)
        rows = zip(tokens, *map(values, (own, best, found)), strict=True)
        self._logprobs += [
            TokenLogprob(token, logprob, tuple(zip(ids, likely, strict=True)))
            for token, logprob, ids, likely in rows
        ]


class EngineThread:
    """Owns the models and writes the replies."""

    def __init__(self, shelf: Shelf, watch: Watch = lambda model, name, event: None) -> None:
        """Prepare the thread, which `start` starts: from then on it alone uses the shelf's models.

        `watch` receives the start of every reply and each of its events.
        """
        self.shelf, self._watch = shelf, watch
        self._orders: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._holds: list[tuple[Offer, Future[Loaded]]] = []
        self._tickets: dict[Reply, Ticket] = {}
        self._stopped = threading.Event()
        self._gave_back_s = time.monotonic()
        self._thread = threading.Thread(target=self._run, name="engine")

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End all replies and close the models; blocks until this is done."""
        self._orders.put(self._stopped.set)
        self._thread.join()

    @property
    def num_replies(self) -> int:
        return len(self._tickets)

    def hold(self, offer: Offer) -> "Future[Loaded]":
        """Return a model once it is in memory; it stays there until `release`."""
        future: Future[Loaded] = Future()
        self._orders.put(lambda: self._holds.append((offer, future)))
        return future

    def release(self, loaded: Loaded) -> None:
        def act() -> None:
            loaded.num_users -= 1

        self._orders.put(act)

    def ask(self, loaded: Loaded, tickets: Sequence[Ticket]) -> None:
        self._orders.put(lambda: self._join(loaded, tickets))

    def end_replies(self) -> None:
        """End the running replies and the waiting requests, because the server stops."""
        self._orders.put(self._refuse_all)

    # ---- in the thread ---------------------------------------------------------------------

    def _run(self) -> None:
        while not self._stopped.is_set():
            self._take_orders()
            self._serve_holds()
            for loaded in list(self.shelf.loaded):
                if loaded.batch.num_replies:
                    self._step(loaded)
            if time.monotonic() - self._gave_back_s > _BUSY_S:
                self._give_back()
        self._refuse_all()
        self._tickets.clear()
        for loaded in list(self.shelf.loaded):
            self.shelf.close(loaded)

    def _take_orders(self) -> None:
        is_idle = not self._tickets and not any(map(self._is_servable, self._holds))
        with suppress(queue.Empty):
            if is_idle:
                self._wait()()
            while True:
                self._orders.get_nowait()()

    def _wait(self) -> Callable[[], None]:
        try:
            return self._orders.get(timeout=_IDLE_S)
        except queue.Empty:
            for loaded in self.shelf.loaded:
                loaded.batch.save_prefixes(lambda: not self._orders.empty())
            self._give_back()
            return self._orders.get()

    def _give_back(self) -> None:
        """Return freed memory to the system: texts of many lengths fragment the heap."""
        give_back_memory()
        self._gave_back_s = time.monotonic()

    def _is_servable(self, hold: tuple[Offer, "Future[Loaded]"]) -> bool:
        offer, _ = hold
        return self.shelf.in_memory(offer) is not None or self.shelf.may_load(offer)

    def _serve_holds(self) -> None:
        """Grant the requested models in order; the first one that has to wait blocks the rest."""
        while self._holds and self._is_servable(self._holds[0]):
            offer, future = self._holds.pop(0)
            if not future.set_running_or_notify_cancel():
                continue
            try:
                loaded = self.shelf.in_memory(offer) or self.shelf.load(offer)
            except Exception as error:  # the thread has to live for the other models
                _log.exception("a model could not be loaded")
                future.set_exception(Refusal(503, f"{offer.name} cannot be loaded: {error}"))
                continue
            loaded.num_users += 1
            future.set_result(loaded)

    def _join(self, loaded: Loaded, tickets: Sequence[Ticket]) -> None:
        for ticket in tickets:
            params = ticket.job.params
            job = ticket.job
            if ticket.num_logprobs is not None:
                job = replace(job, params=replace(params, on_logits=ticket.note))
            self._tickets[loaded.batch.add(job)] = ticket
            drafter = loaded.drafter if params.num_draft_tokens else "none"
            started = loaded.engine.started(params, drafter)
            self._watch(loaded.offer.name, ticket.name, started)

    def _step(self, loaded: Loaded) -> None:
        for reply, ticket in self._tickets.items():
            if ticket.is_cancelled.is_set():
                reply.cancel()
        try:
            if any(reply.job.params.exact for reply in loaded.batch.waiting):
                exact_form(loaded.batch.workspace.decoder, _told.info)
            happened = loaded.batch.step()
        except Exception as error:  # the thread has to live for all other requests
            _log.exception("a step failed")
            self._fail(loaded, str(error) or type(error).__name__)
            return
        for reply, event in happened:
            self._tell(loaded, reply, event)

    def _tell(self, loaded: Loaded, reply: Reply, event: Event) -> None:
        ticket = self._tickets[reply]
        if isinstance(event, GenerationFinished | GenerationFailed):
            del self._tickets[reply]
            ticket.error = reply.error
        self._watch(loaded.offer.name, ticket.name, event)  # first: a reply that is told counts
        ticket.tell(event)

    def _fail(self, loaded: Loaded, message: str) -> None:
        """End the replies of a model whose round failed, and open a new batch."""
        for reply in loaded.batch.present:
            if ticket := self._tickets.pop(reply, None):
                failed = GenerationFailed(reply.continuation.seconds(), message)
                ticket.tell(failed)
                self._watch(loaded.offer.name, ticket.name, failed)
        loaded.batch = self.shelf.open_batch(loaded.engine)

    def _refuse_all(self) -> None:
        for reply, ticket in self._tickets.items():
            ticket.tell(GenerationFailed(0.0, _STOPS))
            ticket.is_cancelled.set()
            reply.cancel()
        for _, future in self._holds:
            if future.set_running_or_notify_cancel():
                future.set_exception(Refusal(503, _STOPS))
        self._holds.clear()
