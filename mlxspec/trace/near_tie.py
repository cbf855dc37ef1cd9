"""The one rule for what rounding may decide between two greedy replies.

Kernels round a row differently when other rows stand beside it. Two tokens are nearly tied where
their logits differ by at most `NEAR_TIE_DRIFTS` times what a logit drifts so, and that is measured
(see `measure/drift.py`), on this machine and with this model: in half precision it is a hundred
times and more what it is in float32. Where nothing drifts, nothing is excused.
"""

NEAR_TIE_DRIFTS = 4
"""Logits are nearly tied up to so many drifts: two move against each other by up to two, and a
text that was not measured may drift twice as far."""


def near_tie_of(drift: float) -> float:
    """Return the largest gap between two logits that rounding explains.

    Args:
        drift: By how much a logit drifts.
    """
    return NEAR_TIE_DRIFTS * drift


def is_near_tie(gap: float | None, near_tie: float) -> bool:
    """Say whether rounding explains that another token was taken.

    Args:
        gap: Between the logits of the two tokens; None where one reply is over, which no
            rounding explains.
        near_tie: The largest that rounding explains; 0 where nothing drifts: then another choice
            between equal logits is not explained either.
    """
    return gap is not None and 0 < near_tie >= gap


def verdict_on(gap: float | None, near_tie: float) -> str:
    """Return in words what is to be thought of a gap."""
    name = "a near-tie" if is_near_tie(gap, near_tie) else "NOT A NEAR-TIE"
    if gap is None:
        return name
    if not near_tie:
        return f"{name}, as rounding changes nothing here"
    return f"{name}, as rounding explains up to {near_tie:.2g} here"
