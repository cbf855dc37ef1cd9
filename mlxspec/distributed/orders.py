"""What rank 0 tells the other ranks to do, one message before each forward.

An order is a list: the name of a method of `Follower`, and its arguments as JSON. Orders that need
no forward travel with the next one that does, so a round is one message: the path to commit, then
the tree.

A rank that ends, ends the run: a sum that waits for it never returns, and MLX computes nothing more
in this process.
"""

import atexit
import os
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

from mlxspec.device.turns import device_turn
from mlxspec.distributed.processes import Processes
from mlxspec.errors import RankLostError

_LOOK_S = 0.5
_ORDERLY_S = 5.0  # what this process gets to end in order, before it ends anyway


class Orders:
    """Rank 0's messages to the other ranks."""

    def __init__(
        self, send: Callable[[list[Any]], None], processes: Processes | None = None
    ) -> None:
        """Prepare to send lists of orders, and end this process if one of `processes` ends.

        `processes` are the other ranks, or None where another program watches them.
        """
        self.reason = ""  # why the target is lost; "" while all ranks are in step
        self.is_together = False  # whether this rank is doing its part of an order
        self._send, self._processes = send, processes
        self._waiting: deque[list[Any]] = deque()  # finalizers add to it, in any thread
        if processes is not None:
            threading.Thread(target=self._end_with_a_rank, daemon=True).start()

    def later(self, *order: Any) -> None:
        """Send an order together with the next one that needs a forward."""
        self._waiting.append(list(order))

    @contextmanager
    def together(self, *order: Any) -> Iterator[None]:
        """Send an order and all delayed ones; the block is the part of this rank.

        If this rank fails meanwhile, the ranks are out of step, so RankLostError is raised.
        """
        with _uninterrupted(), device_turn():  # shared streams: other threads go on with arrays
            if self.reason:
                raise RankLostError(self._message())
            self.later(*order)
            self.is_together = True
            try:
                self._send([self._waiting.popleft() for _ in range(len(self._waiting))])
                yield
            except Exception as error:
                time.sleep(_LOOK_S)  # until a process that has ended shows
                self.reason = self._ended() or f"rank 0: {type(error).__name__}: {error}"
                raise RankLostError(self._message()) from error
            finally:
                self.is_together = False

    def _message(self) -> str:
        return (
            f"the target is lost, since it stands on several ranks and one is gone ({self.reason});"
            " the chat is kept: start mlxspec again to go on"
        )

    def _ended(self) -> str:
        return "" if self._processes is None else self._processes.ended()

    def _end_with_a_rank(self) -> None:
        while not (reason := self.reason or self._ended()):
            time.sleep(_LOOK_S)
        self.reason = reason
        atexit.register(self._leave)
        os.kill(os.getpid(), signal.SIGINT)  # an app gives the terminal back, for example
        time.sleep(_ORDERLY_S)
        self._leave()

    def _leave(self) -> None:
        """End all processes, this one without MLX, which might wait forever."""
        if self._processes is not None:
            self._processes.end()
        print(f"mlxspec: {self._message()}", file=sys.stderr, flush=True)
        with suppress(OSError, ValueError):  # its reader is gone
            sys.stdout.flush()
        os._exit(1)


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Delay Ctrl+C until all ranks are in step; a second one ends this process.

    Only the main thread receives it, so other threads need nothing.
    """
    before: Any = signal.getsignal(signal.SIGINT)
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or not callable(before):  # nobody in Python waits for it
        yield
        return
    pressed: list[int] = []

    def remember(number: int, frame: FrameType | None) -> None:
        if pressed:
            os._exit(128 + number)
        pressed.append(number)

    signal.signal(signal.SIGINT, remember)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if pressed:
            before(pressed[0], None)
