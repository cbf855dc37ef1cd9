"""The speed of decoding, estimated from the cost of forwards and the tokens that they emit."""

from mlxspec.budget import CostCurve


def estimated_tps(cost: CostCurve, tokens_per_forward: float, rows_per_forward: float) -> float:
    """Return tokens/s of decoding if only forwards take time.

    Drafting and the host take some time, too, so a measurement is lower. With several ranks, the
    cost of a forward includes communication. Plain decoding has 1 token and 1 row per forward; the
    rows include the root.
    """
    return 1e3 * tokens_per_forward / cost.cost(max(1, round(rows_per_forward)))
