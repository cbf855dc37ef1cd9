"""What the cost of forwards means for the speed of decoding.

The roofline of plain decoding: each token needs one forward, and a forward reads all weights. So
plain decoding cannot be faster than the memory's bandwidth over the bytes of a forward. Drafts can,
because one forward then yields several tokens. The paper is Williams et al., "Roofline: An
Insightful Visual Performance Model for Multicore Architectures" (2009).
"""

from collections.abc import Mapping
from dataclasses import dataclass

from mlxspec.budget import CostCurve
from mlxspec.budget.cost import cost_curve, verify_forward
from mlxspec.engine.engine import Engine
from mlxspec.measure.tables import table

CONTEXT = 256
"""Tokens in the cache while a forward is timed."""


@dataclass(frozen=True)
class Roofline:
    """The bound that the memory sets to plain decoding.

    `gb_per_s` is the read bandwidth. A forward of one row reads all `weight_bytes` once.
    """

    gb_per_s: float
    weight_bytes: int

    @property
    def least_ms(self) -> float:
        """The least time of a forward in milliseconds."""
        return self.weight_bytes / self.gb_per_s / 1e6

    @property
    def most_tokens_per_s(self) -> float:
        """The highest speed of plain decoding in tokens/s."""
        return 1e3 / self.least_ms

    def describe(self, speeds: Mapping[str, float]) -> str:
        """Return two sentences: the bound, and measured speeds as shares of it.

        `speeds` are tokens/s by the name of the drafter; `none` is plain decoding.
        """
        bound = (
            f"The memory is read at {self.gb_per_s:.1f} GB/s, so a forward over "
            f"{self.weight_bytes / 1e6:.0f} MB of weights takes {self.least_ms:.1f} ms or more, "
            f"and plain decoding writes at most {self.most_tokens_per_s:.0f} tokens/s."
        )
        shares = ", ".join(
            f"{'plain' if name == 'none' else name} {speed / self.most_tokens_per_s:.0%}"
            for name, speed in speeds.items()
        )
        return f"{bound} Reached of that: {shares}." if shares else bound


def forward_cost(engine: Engine) -> CostCurve:
    """Time forwards by their number of rows; the target's cache is empty afterwards."""
    target = engine.target
    target.reset()
    target.observe([0] * min(CONTEXT, (engine.context_length or CONTEXT * 2) // 2))
    curve = cost_curve(verify_forward(target))
    target.reset()
    return curve


def estimated_tps(cost: CostCurve, tokens_per_forward: float, rows_per_forward: float) -> float:
    """Return tokens/s of decoding if only forwards take time.

    Drafting and the host take some time, too, so a measurement is lower. With several ranks, the
    cost of a forward includes communication. Plain decoding has 1 token and 1 row per forward; the
    rows include the root.
    """
    return 1e3 * tokens_per_forward / cost.cost(max(1, round(rows_per_forward)))


def cost_table(cost: CostCurve) -> str:
    """Return a table of rows, milliseconds, and the ratio to one row."""
    return table(
        [
            ["rows", *map(str, cost.ms)],
            ["ms", *(f"{ms:.1f}" for ms in cost.ms.values())],
            ["ratio", *(f"{ratio:.2f}" for ratio in cost.ratios)],
        ]
    )
