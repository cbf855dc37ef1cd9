"""Threads take turns at the device, in streams that belong to none of them.

MLX gives every thread streams of its own, and what one thread leaves lazy no other can compute: a
reply that is read in a worker thread, or in another thread at each step as asynchronous servers
do, would leave a cache that nobody else can read. So whatever an engine computes is computed in
streams that all threads share. MLX leaves it to their user that two threads never do so at once:
a turn is held for one step of a reply, such as a round, and never while its events are looked at.

What MLX keeps for a thread beside its streams (compiled functions, random state) are objects of
Python. They must go before Python does, or the process aborts at its end.
"""

import atexit
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import mlx.core as mx

_LAST_STEP_S = 10.0  # how long the end of the process waits for the step of a daemon thread

_room = threading.RLock()  # a finalizer may run within a turn, in the thread that holds it
_streams: dict[tuple[str, int], mx.Stream] = {}


class _ThreadEnd:
    """Lets go of what MLX keeps for a thread as the thread ends, while Python still runs."""

    def __del__(self) -> None:
        mx.clear_streams()


class _Mine(threading.local):
    """What a thread knows of its own turns.

    Attributes:
        depth: Turns within each other that it holds.
        end: Goes with the thread; the main thread's MLX takes care of.
    """

    def __init__(self) -> None:
        self.depth = 0
        is_main = threading.current_thread() is threading.main_thread()
        self.end = None if is_main else _ThreadEnd()


_mine = _Mine()


@contextmanager
def device_turn() -> Iterator[None]:
    """Wait until no other thread computes, then compute in the shared stream.

    A turn within a turn of the same thread is part of it.
    """
    with _room, _shared():
        yield


@contextmanager
def free_turn() -> Iterator[bool]:
    """Take a turn only where nobody has to be waited for, as finalizers must; tells whether."""
    if not _room.acquire(blocking=False):
        yield False
        return
    try:
        with _shared():
            yield True
    finally:
        _room.release()


def is_mine() -> bool:
    """Return whether this thread has the turn."""
    return _mine.depth > 0


def may_compile() -> bool:
    """Return whether this thread may call what MLX compiles.

    Daemon threads are cut off by the end of the process, with what MLX keeps for them.
    """
    return not threading.current_thread().daemon


def shared_stream(device: mx.Device, core: int = 0) -> mx.Stream:
    """Return the stream of a device, or of one of its cores, that all threads share."""
    key = str(device), core
    if key not in _streams:
        _streams[key] = mx.new_thread_unsafe_stream(device)
    return _streams[key]


@contextmanager
def _shared() -> Iterator[None]:
    _mine.depth += 1
    try:
        with mx.stream(shared_stream(mx.default_device())):
            yield
    finally:
        _mine.depth -= 1


@atexit.register
def _keep_the_last_turn() -> None:
    """Let no daemon thread be in the midst of a step when the process ends."""
    _room.acquire(timeout=_LAST_STEP_S)
