"""What one forward costs by its number of rows, measured on this machine.

Whether speculation pays is decided by this curve: n rows that cost little more than one make
every accepted draft token a gain. It is a staircase whose steps differ by machine, so it is
measured and never assumed.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

from mlxspec import backend
from mlxspec.decoder import Decoder
from mlxspec.tree import DraftTree

WIDTHS = (1, 2, 4, 8, 16, 32)
_IDLE_REPEATS = 5  # other programs run beside a chat


@dataclass(frozen=True)
class CostCurve:
    """Milliseconds of a forward by number of rows.

    Attributes:
        widths: Numbers of rows, ascending, the first one 1.
        ms: Median milliseconds of each.
    """

    widths: tuple[int, ...]
    ms: tuple[float, ...]

    @property
    def ratios(self) -> tuple[float, ...]:
        """Cost of each width in forwards of one row."""
        return tuple(ms / self.ms[0] for ms in self.ms)


def cost_curve(
    forward: Callable[[int], None], widths: Sequence[int] = WIDTHS, *, repeats: int = 3
) -> CostCurve:
    """Time `forward(width)` for every width.

    The widths take turns, so that a machine that slows down meanwhile slows all of them alike.

    Args:
        forward: Runs a forward of so many rows and waits for it.
        widths: Numbers of rows, ascending from 1.
        repeats: Timings of each width, after one that is not counted.
    """
    timings: dict[int, list[float]] = {width: [] for width in widths}
    for width in widths:
        forward(width)
    for _ in range(repeats):
        for width in widths:
            start = time.perf_counter()
            forward(width)
            timings[width].append((time.perf_counter() - start) * 1e3)
    return CostCurve(tuple(widths), tuple(median(timings[width]) for width in widths))


class _StoppedMeasuring(Exception):
    """Unwinds a measurement that has to make way."""


def idle_cost_curve(
    decoder: Decoder, should_stop: Callable[[], bool], widths: Sequence[int] = WIDTHS
) -> CostCurve | None:
    """Time forwards over what a decoder holds, which stays as it is.

    Args:
        decoder: Runs them.
        should_stop: Asked before each forward.
        widths: Numbers of rows, ascending from 1.

    Returns:
        The curve, or None where it was stopped: what is unfinished would mislead.
    """
    verify = verify_forward(decoder)

    def forward(width: int) -> None:
        if should_stop():
            raise _StoppedMeasuring
        verify(width)

    try:
        return cost_curve(forward, widths, repeats=_IDLE_REPEATS)
    except _StoppedMeasuring:
        return None


def verify_forward(decoder: Decoder) -> Callable[[int], None]:
    """Return a function that verifies a chain of so many rows, and forgets them again."""

    def forward(width: int) -> None:
        tree = DraftTree.from_lists([0] * width, range(-1, width - 1))
        backend.sync(decoder.logits(decoder.forward_tree(tree)))
        decoder.commit([])

    return forward
