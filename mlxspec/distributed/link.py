"""Rank 0's side of all connections: it sends to every rank, and notices a lost rank.

A separate thread waits for collectives. A collective whose other side is gone never returns, so
that thread is then abandoned, and the caller gets `RankLostError` within seconds. From then on MLX
can compute nothing in this process, because its queue waits forever.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from itertools import count
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

import mlx.core as mx

from mlxspec.distributed.orders import Order, packed
from mlxspec.distributed.wire import SILENCE_S, Wire, WireError
from mlxspec.errors import RankLostError

T = TypeVar("T")

_NOTICED_S = 2.0  # until the end of a process is noticed
_LOOK_S = 0.2  # between two checks for a lost rank


class Link:
    """The other ranks, seen from rank 0; its methods raise RankLostError if a rank is lost.

    Attributes:
        reason: Why it is lost; "" while all ranks are connected.
        num_messages: Messages of orders sent to each rank so far.
        numbers: Gives every decoder its own number.
    """

    def __init__(self, wires: Sequence[Wire], at_loss: Callable[[], None] = lambda: None) -> None:
        """Watch the connections to ranks 1, 2, ...

        `at_loss` is called once when a rank is lost, in any thread; it ends the other processes.
        """
        self.reason = ""
        self.num_messages = 0
        self.numbers = count()
        self._wires = tuple(wires)
        self._at_loss = at_loss
        self._waiting: deque[Order] = deque()  # finalizers add to it, in any thread
        self._answers: list[SimpleQueue[dict[str, Any]]] = [SimpleQueue() for _ in wires]
        self._worker = Worker()
        self._losing = threading.Lock()
        for rank, wire in enumerate(self._wires, 1):
            threading.Thread(target=self._watch, args=(rank, wire), daemon=True).start()

    @property
    def size(self) -> int:
        """Number of ranks, rank 0 included."""
        return len(self._wires) + 1

    # ---- sending ---------------------------------------------------------------------------

    def later(self, order: Order) -> None:
        """Send an order together with the next one that needs a forward."""
        self.check()
        self._waiting.append(order)

    def now(self, order: Order) -> None:
        """Send an order and all delayed ones as one message."""
        self.later(order)
        message = packed([self._waiting.popleft() for _ in range(len(self._waiting))])
        self.num_messages += 1
        self._send(lambda wire: wire.send_orders(message))

    def forget(self) -> None:
        """Drop the delayed orders, because their decoders are gone."""
        self._waiting.clear()

    def tell(self, **facts: Any) -> None:
        """Send named facts to every rank."""
        self.check()
        self._send(lambda wire: wire.send(**facts))

    def _send(self, send: Callable[[Wire], None]) -> None:
        for rank, wire in enumerate(self._wires, 1):
            try:
                send(wire)
            except WireError as error:
                self.lose(f"rank {rank}: {error}")
        self.check()

    def answers(self) -> list[dict[str, Any]]:
        """Wait for the next facts of every rank, in order of rank."""
        return [self._answer(queue) for queue in self._answers]

    def _answer(self, queue: "SimpleQueue[dict[str, Any]]") -> dict[str, Any]:
        while True:
            try:
                return queue.get(timeout=_LOOK_S)
            except Empty:
                self.check()

    # ---- waiting ---------------------------------------------------------------------------

    def wait(self, *arrays: Any) -> None:
        self.attend(lambda: mx.eval(*arrays))

    def attend(self, act: Callable[[], T]) -> T:
        """Return the result of `act`, which may wait for collectives; a loss abandons it."""
        self.check()
        try:
            return attended(self._worker, act, self.check)
        except RuntimeError:  # some collectives raise, maybe before the loss is noticed here
            end = time.monotonic() + _NOTICED_S
            while not self.reason and time.monotonic() < end:
                time.sleep(_LOOK_S)
            self.check()
            raise

    # ---- losing a rank ---------------------------------------------------------------------

    def check(self) -> None:
        """Raise RankLostError if a rank is lost."""
        if self.reason:
            raise RankLostError(
                f"the target is lost, since it stands on {self.size} ranks and one is gone "
                f"({self.reason}); the chat is kept: start mlxspec again to go on"
            )

    def lose(self, reason: str) -> None:
        """Record that a rank is lost, and end the other processes; only the first reason counts."""
        with self._losing:
            if self.reason:
                return
            self.reason = reason
        self._end()

    def close(self) -> None:
        with self._losing:
            self.reason = self.reason or "the link was closed"
        self._end()

    def _end(self) -> None:
        for wire in self._wires:
            wire.close()
        self._at_loss()

    def _watch(self, rank: int, wire: Wire) -> None:
        try:
            while True:
                facts = wire.receive(SILENCE_S)
                assert isinstance(facts, dict), "only rank 0 sends orders"
                if "fault" in facts:
                    raise WireError(str(facts["fault"]))
                self._answers[rank - 1].put(facts)
        except WireError as error:
            self.lose(f"rank {rank}: {error}")


def attended(worker: "Worker", act: Callable[[], T], check: Callable[[], None]) -> T:
    """Run `act` in a worker and return its result; `check` is called meanwhile and may raise.

    If it raises, `act` is abandoned.
    """
    done = worker.begin(act)
    while not wait([done], timeout=_LOOK_S).done:
        check()
    return done.result()


class Worker:
    """A thread that runs one task after the other; the end of the process does not wait for it.

    It would wait for a pool of `concurrent.futures`.
    """

    def __init__(self) -> None:
        self._tasks: SimpleQueue[tuple[Callable[[], Any], Future[Any]]] = SimpleQueue()
        threading.Thread(target=self._work, daemon=True).start()

    def begin(self, act: Callable[[], T]) -> "Future[T]":
        """Queue a task; return the future of its result."""
        done: Future[T] = Future()
        self._tasks.put((act, done))
        return done

    def _work(self) -> None:
        while True:
            act, done = self._tasks.get()
            try:
                done.set_result(act())
            except BaseException as error:  # raised again in the thread that waits
                done.set_exception(error)
            del act, done  # they hold arrays
