"""What the cost of forwards means for the speed of decoding."""

from collections.abc import Mapping

from mlxspec.budget import CostCurve
from mlxspec.budget.cost import cost_curve, verify_forward
from mlxspec.engine.engine import Engine
from mlxspec.measure.tables import table

CONTEXT = 256  # tokens in the cache while a forward is timed


def roofline_text(gb_per_s: float, weight_bytes: int, speeds: Mapping[str, float]) -> str:
    """Return the bound that the memory sets to plain decoding, and the shares reached of it.

    A forward of one row reads all weights once; a drafted one yields several tokens (Williams et
    al., "Roofline: An Insightful Visual Performance Model for Multicore Architectures", 2009).
    `speeds` are tokens/s by drafter; `none` is plain decoding.
    """
    least_ms = weight_bytes / gb_per_s / 1e6
    most = 1e3 / least_ms  # tokens/s
    bound = (
        f"The memory is read at {gb_per_s:.1f} GB/s, so a forward over {weight_bytes / 1e6:.0f} MB "
        f"of weights takes {least_ms:.1f} ms or more, and plain decoding writes at most {most:.0f} "
        "tokens/s."
    )
    shares = ", ".join(
        f"{'plain' if name == 'none' else name} {speed / most:.0%}"
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
    """Return tokens/s of decoding if only forwards take time; the rows include the root."""
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
