"""Times forwards by their number of rows, to start a cost curve on this machine.

This curve decides whether speculation pays: where n rows cost little more than one, every accepted
draft token is a gain. The curve rises in steps that differ by machine, so it is measured and never
assumed.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from statistics import median

from mlxspec.budget.curve import CostCurve
from mlxspec.decoder.decoder import Decoder
from mlxspec.drafts.tree import DraftTree

WIDTHS = (1, 2, 4, 5, 8, 12, 16, 32)
_SHAPE_WIDTHS = (1, 4, 2, 16, 8, 32)
_STEP_WIDTHS = (5, 3, 12, 15, 10, 24, 9, 20)
STEPS = (*_SHAPE_WIDTHS, *_STEP_WIDTHS)
"""First the widths that show the shape of the curve, then other last rows of the steps of MLX's
kernels, those of most chips first: slow forwards leave no time for the last of them. Up to 5 rows
share a reading of quantised weights, and from the fourth on arithmetic costs more than reading; up
to 8 share the vector kernel of attention; a tile begins after 5, 9, 12, 15 or 24. Rows inside of a
step cost about as much as its end, so they are not worth the time: the reply waits."""

_QUICK_WIDTHS = (*_SHAPE_WIDTHS, *_SHAPE_WIDTHS, *_STEP_WIDTHS, *_STEP_WIDTHS)
"""Each width occurs twice, because its first call may compile a kernel."""

_QUICK_SECONDS = 1.5
_QUICK_FORWARDS = 12  # of one row: slow forwards need more time to show the shape of the curve
_MOST_SECONDS = 4.0  # the reply waits meanwhile
_LEAST_MS = 1e-3  # a clock that does not move between two calls must not give a cost of 0


def cost_curve(
    forward: Callable[[int], None], widths: Sequence[int] = WIDTHS, *, repeats: int = 3
) -> CostCurve:
    """Time `forward(width)` for every width, 1 among them, and return the medians.

    The widths take turns, so that a slowdown of the machine affects all of them alike. `forward`
    runs that many rows and waits for them.
    """
    timings: dict[int, list[float]] = {width: [] for width in widths}
    for number in range(1 + repeats):
        for width in widths:
            ms = _timed(forward, width, time.perf_counter)
            if number:  # not the first: it may compile a kernel
                timings[width].append(ms)
    return CostCurve({width: median(timings[width]) for width in widths})


def _timed(forward: Callable[[int], None], width: int, clock: Callable[[], float]) -> float:
    start = clock()
    forward(width)
    return max((clock() - start) * 1e3, _LEAST_MS)


def quick_costs(
    decoder: Decoder,
    most: int,
    *,
    seconds: float = _QUICK_SECONDS,
    clock: Callable[[], float] = time.perf_counter,
) -> CostCurve:
    """Time a few forwards of at most `most` rows before a reply, which waits meanwhile.

    The decoder does not change. The time limit is `seconds`, more for slow forwards.
    """
    widths = [width for width in _QUICK_WIDTHS if width <= most]
    forward = verify_forward(decoder)
    return fastest_times(forward, widths, seconds=seconds, forwards=_QUICK_FORWARDS, clock=clock)


def fastest_times(
    forward: Callable[[int], None],
    widths: Sequence[int],
    *,
    seconds: float,
    forwards: int = 0,
    clock: Callable[[], float] = time.perf_counter,
) -> CostCurve:
    """Time `forward(width)` for these widths in turn, 1 first, until the time limit.

    The fastest time of a width counts: the first may compile a kernel, and other programs may slow
    down any. A width that is expected to exceed the limit is skipped; one row is always timed. The
    time limit is `seconds`, or the time of `forwards` forwards of one row, up to 4 seconds.
    """
    end = clock() + seconds
    forward(1)  # not timed: it brings the weights into memory
    ms: dict[int, float] = {}
    for width in widths:
        if ms and clock() + _expected_ms(ms, width) / 1e3 > end:
            continue
        start = clock()
        took = _timed(forward, width, clock)
        if not ms:
            end = max(end, start + min(forwards * took / 1e3, _MOST_SECONDS))
        ms[width] = min(took, ms.get(width, took))
    return CostCurve(ms)


def _expected_ms(ms: Mapping[int, float], width: int) -> float:
    """Return the expected milliseconds of a width, given timed widths, 1 among them."""
    last = max(ms)
    if width <= last:
        return ms.get(width, max(ms.values()))
    slope = (ms[last] - ms[1]) / (last - 1) if last > 1 else ms[1]
    return ms[last] + slope * (width - last)


def verify_forward(decoder: Decoder) -> Callable[[int], None]:
    """Return a function that runs the forward of a chain of `width` rows, and rolls it back."""

    def forward(width: int) -> None:
        tree = DraftTree.from_lists([0] * width, range(-1, width - 1))
        decoder.tree_logits(tree)

    return forward
