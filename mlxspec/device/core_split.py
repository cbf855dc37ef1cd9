"""Core split: the cores of a small CPU share the products of a forward, as two devices would.

MLX computes one operation after the other. On a CPU only the BLAS below it uses a second core, and
for the few rows of a draft its threads need as long to share the work as to do it. So the work is
shared here: a matrix is cut by its rows, each part runs in its own stream with one BLAS thread,
and the results are concatenated (column parallelism: Megatron-LM, Shoeybi et al. 2019,
https://arxiv.org/abs/1909.08053). No sum is cut, so the result is that of the whole product.

    core 0   q ........ | attention | o, upper rows | silu of gate | down, upper rows
    core 1   k, v       |           | o, lower rows | up ......... | down, lower rows
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar

import mlx.core as mx

from mlxspec.device import backend, turns
from mlxspec.device.blas import blas_threads, set_blas_threads

First = TypeVar("First")
Second = TypeVar("Second")


class Part(NamedTuple):
    """Part `core` of the `of` parts of a matrix, cut by its rows."""

    core: int
    of: int

    def rows(self, height: int) -> slice:
        """Return which of the `height` rows of a matrix are in this part."""
        return slice(self.core * height // self.of, (self.core + 1) * height // self.of)


WHOLE = Part(0, 1)


class _CoreSplit:
    """How many cores share the work of this process, and the stream of the second one."""

    def __init__(self) -> None:
        self.count = 0
        self.is_open = False
        self.blas_threads = 1  # threads that the BLAS would use without a split
        self._own: mx.ThreadLocalStream | None = None
        self._shared: mx.Stream | None = None

    def open(self) -> None:
        self.is_open, self.count = True, backend.num_split_cores()
        self.blas_threads = blas_threads()
        if self.count:
            set_blas_threads(1)
        if self.count > 1:
            self._own = mx.new_thread_local_stream(mx.cpu)
            self._shared = turns.shared_stream(mx.Device(mx.cpu), 1)

    @property
    def second(self) -> Any:
        """The stream of the second core: the shared one in a turn, else the thread's own."""
        return self._shared if turns.is_mine() else self._own


_split = _CoreSplit()


def count() -> int:
    """Return how many cores share work; 0 where MLX and its BLAS are faster without a split."""
    if not _split.is_open:
        _split.open()
    return _split.count


@contextmanager
def left_to_blas() -> Iterator[None]:
    """Compute without the split, with all threads that the BLAS would use.

    This is for loops of other libraries, and for training: a split product multiplies views of the
    weights, so gradients would not reach the weights themselves.
    """
    before = count()
    _split.count = 0
    if before:
        set_blas_threads(_split.blas_threads)
    try:
        yield
    finally:
        _split.count = before
        if before:
            set_blas_threads(1)


def each(run: Callable[[Part], First]) -> list[First]:
    """Return the result of every core for its part, which is the whole matrix without a split."""
    if count() < 2:
        return [run(WHOLE)]
    return list(together(lambda: run(Part(0, 2)), lambda: run(Part(1, 2))))


def together(first: Callable[[], First], second: Callable[[], Second]) -> tuple[First, Second]:
    """Return the results of two computations, run on two cores if these share work."""
    if count() < 2:
        return first(), second()
    with mx.stream(_split.second):
        beside = second()
    return first(), beside
