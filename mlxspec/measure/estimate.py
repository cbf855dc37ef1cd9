"""The speed of decoding, estimated from the cost of forwards and the tokens that they emit."""

from mlxspec.budget import CostCurve


def estimated_tps(cost: CostCurve, tokens_per_forward: float, rows_per_forward: float) -> float:
    """Return tokens/s of decoding if only forwards take time.

    Drafting and the host take some time, too, so a measurement is lower.

    Args:
        cost: Milliseconds of a forward by its rows; with several ranks, communication included.
        tokens_per_forward: Tokens that a forward emits; 1 for plain decoding.
        rows_per_forward: Rows of a forward, the root included; 1 for plain decoding.
    """
    return 1e3 * tokens_per_forward / cost.cost(max(1, round(rows_per_forward)))
