"""The near-tie rule: whether rounding explains a difference between two greedy replies.

Kernels round a row differently when other rows stand beside it; the change of a logit is its
drift. Two tokens are a near-tie if their logits differ by at most `NEAR_TIE_DRIFTS` times the
drift, measured on this machine with this model (see `measure/drift.py`). In half precision the
drift is a hundred times that of float32, or more. Without drift there is no near-tie.
"""

NEAR_TIE_DRIFTS = 4
"""Largest gap of a near-tie, in drifts. Two logits can move in opposite directions, which gives 2;
another text than the measured one may drift twice as far, which gives 4."""


def near_tie_of(drift: float) -> float:
    """Return the largest gap between two logits that rounding explains.

    Args:
        drift: The largest measured change of a logit.
    """
    return NEAR_TIE_DRIFTS * drift


def is_near_tie(gap: float | None, near_tie: float) -> bool:
    """Return whether rounding explains that the replies have different tokens.

    Args:
        gap: Difference of the logits of the two tokens; None where one reply has ended, which
            rounding never explains.
        near_tie: Largest gap that rounding explains. 0 means no drift: then rounding does not
            even explain another choice between equal logits.
    """
    return gap is not None and 0 < near_tie >= gap


def verdict_on(gap: float | None, near_tie: float) -> str:
    """Return in words whether rounding explains a gap."""
    name = "a near-tie" if is_near_tie(gap, near_tie) else "NOT A NEAR-TIE"
    if gap is None:
        return name
    if not near_tie:
        return f"{name}, as rounding changes nothing here"
    return f"{name}, as rounding explains up to {near_tie:.2g} here"
