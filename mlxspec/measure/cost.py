"""What the cost of forwards means for the speed of decoding."""

from collections.abc import Mapping

from mlxspec.budget import CostCurve
from mlxspec.budget.cost import cost_curve, verify_forward
from mlxspec.device import chips
from mlxspec.engine.engine import Engine
from mlxspec.measure.tables import table

CONTEXT = 256  # tokens in the cache while a forward is timed

RECORDED = {
    "prose": {1: 1.0, 2: 1.42, 3: 1.65, 4: 1.81, 5: 1.9, 6: 1.99, 8: 2.12, 12: 2.21, 16: 2.25},
    "code": {1: 1.0, 2: 1.84, 3: 2.55, 4: 3.12, 5: 3.46, 6: 3.66, 8: 4.11, 12: 4.21, 16: 4.25},
}
"""Tokens of a round by its rows, in the recordings that the program comes with."""

_OTHER_WEIGHTS = {"mxfp4": 4.25, "mxfp8": 8.25, "float16": 16.0}  # bits of a weight with its scale
_MOST_MEMORY = 0.7  # share of the memory that a GPU may use
_MORE = 1.05  # a gain that is less than 5 % larger is not worth another checkpoint


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


def gains(cost: CostCurve) -> list[float]:
    """Return the most that drafts gain over plain decoding: in prose, in code, in a copied text."""
    copied = {rows: float(rows) for rows in cost.ms}
    return [
        max(tokens * cost.ms[1] / cost.cost(rows) for rows, tokens in text.items())
        for text in (*RECORDED.values(), copied)
    ]


def gains_text(cost: CostCurve, weights: str, num_weights: int, memory_gb: float) -> str:
    """Return what drafts can gain with a measured curve, and with which other weights more.

    `weights` is the type of the measured ones. Others are compared on a chip with published costs,
    where they fit in the memory.
    """
    own, chip = gains(cost), chips.here()
    told = [
        "gain of drafts over plain decoding: {} weights {:.1f} (prose), {:.1f} (code), "
        "{:.1f} (copies)".format(weights, *own)
    ]
    for name, bits in _OTHER_WEIGHTS.items():
        gb = bits * num_weights / 8e9
        steps = chip.steps(name) if chip and gb < _MOST_MEMORY * memory_gb else None
        if steps and (found := gains(CostCurve(steps.costs)))[1] > _MORE * own[1]:
            told.append("{} ({:.1f} GB) {:.1f}, {:.1f}, {:.1f}".format(name, gb, *found))
    return "; by published figures ".join(filter(None, [told[0], "; ".join(told[1:])]))


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
