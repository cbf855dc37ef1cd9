"""Threads take turns at the device, in streams that all threads share.

MLX gives every thread its own streams, and no other thread can evaluate an array that is lazy in
them, so an engine computes only in shared streams: its replies may be iterated in any threads. MLX
does not protect a stream from use by two threads at once. So a thread holds a lock, its turn, for
one step of a reply, such as a round. The caller gets the events of the step after the turn.

MLX also stores Python objects for each thread (compiled functions, random state). They must be
freed before the interpreter ends, or the process aborts then.
"""

import atexit
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import mlx.core as mx

from mlxspec.errors import UnsupportedOperationError

_LAST_STEP_S = 10.0  # seconds that the end of the process waits for a step of a daemon thread

_room = threading.RLock()  # a finalizer may run within a turn, in the thread that holds it
_streams: dict[tuple[str, int], mx.Stream] = {}
_in_copy = threading.Event()  # set in a process that was forked from one that has computed


class _ThreadEnd:
    """Frees the streams and objects of a thread when it ends, while the interpreter still runs."""

    def __del__(self) -> None:
        mx.clear_streams()


_ends = threading.local()  # `end` is deleted with its thread


@contextmanager
def device_turn() -> Iterator[None]:
    """Wait until no other thread computes, then compute in the shared stream.

    A nested turn of the same thread is part of the outer one.
    """
    if _in_copy.is_set():
        raise UnsupportedOperationError(
            "this process was forked from one that has used MLX, which computes nothing in a fork: "
            "start processes with multiprocessing.get_context('spawn'), and load the model there"
        )
    with _room, _shared():
        yield


@contextmanager
def building_turn() -> Iterator[None]:
    """Take a turn to build modules; MLX draws their initial weights, but its random state stays."""
    with device_turn():
        state: Any = mx.random.state
        high, low = map(int, state[0].tolist())
        try:
            yield
        finally:
            mx.random.seed(high << 32 | low)


@contextmanager
def free_turn() -> Iterator[bool]:
    """Take a turn only if the device is free; yield whether it was. Finalizers must not wait."""
    if _in_copy.is_set() or not _room.acquire(blocking=False):
        yield False
        return
    try:
        with _shared():
            yield True
    finally:
        _room.release()


def is_mine() -> bool:
    """Return whether this thread has the turn."""
    # Not our own counter: a Ctrl+C between two of its lines would leave it wrong forever.
    return bool(_room._is_owned())  # type: ignore[attr-defined]  # what a Condition asks a lock


def may_compile() -> bool:
    """Return whether this thread may call functions that MLX compiles.

    Daemon threads may not: the end of the process stops them, so nothing frees what MLX stores for
    them.
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
    if not hasattr(_ends, "end"):
        is_main = threading.current_thread() is threading.main_thread()
        _ends.end = None if is_main else _ThreadEnd()  # MLX itself frees those of the main thread
    with mx.stream(shared_stream(mx.default_device())):
        yield


@atexit.register
def _keep_the_last_turn() -> None:
    """Let a step of a daemon thread finish before the process ends."""
    if not _in_copy.is_set():
        _room.acquire(timeout=_LAST_STEP_S)  # never released, so that no other step starts


def _after_fork() -> None:
    if _streams:
        _in_copy.set()


os.register_at_fork(after_in_child=_after_fork)
