"""Times the link between the ranks: the latency of a small sum, the bandwidth of a large one."""

import time
from dataclasses import dataclass
from statistics import median

import mlx.core as mx

from mlxspec.device.turns import device_turn
from mlxspec.distributed.link import Link
from mlxspec.distributed.orders import Kind, Order

_TIMES = 20
_FEW = 1024  # numbers of a small sum: about a row of hidden states
_MANY = 1 << 20


@dataclass(frozen=True)
class LinkFigures:
    """The cost of a collective.

    Attributes:
        latency_ms: Median milliseconds of a sum of 1,024 numbers.
        bandwidth: MB/s of summed numbers, in sums of 4 MB.
    """

    latency_ms: float
    bandwidth: float

    def words(self, num_sums: int) -> str:
        """Return the figures as a line, for `num_sums` collectives per forward."""
        return (
            f"link: {self.latency_ms:.2f} ms a sum of {_FEW:,} numbers, {self.bandwidth:.0f} MB/s "
            f"in large ones; {num_sums} collectives a forward take "
            f"{num_sums * self.latency_ms:.0f} ms, whatever the rows"
        )


def measure_link(group: mx.distributed.Group, link: Link) -> LinkFigures:
    """Time sums over all ranks, on rank 0.

    Raises:
        RankLostError: A rank is lost meanwhile.
    """
    with device_turn():
        few, many = (_times(group, link, numbers) for numbers in (_FEW, _MANY))
    return LinkFigures(1e3 * median(few), 4e-6 * _MANY / median(many))


def _times(group: mx.distributed.Group, link: Link, numbers: int) -> list[float]:
    link.now(Order(Kind.PROBE, 0, (numbers, _TIMES)))
    times: list[float] = []
    for _ in range(_TIMES):
        summed = _sum(group, numbers)
        start = time.perf_counter()
        link.wait(summed)
        times.append(time.perf_counter() - start)
    return times


def _sum(group: mx.distributed.Group, numbers: int) -> mx.array:
    return mx.distributed.all_sum(mx.ones(numbers), group=group)


def answer_probe(group: mx.distributed.Group, numbers: int, times: int) -> None:
    """Take part in the sums, on another rank."""
    for _ in range(times):
        mx.eval(_sum(group, numbers))
