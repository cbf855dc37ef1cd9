"""The near-tie rule: whether rounding explains a difference between two greedy replies.

Kernels round a row differently when the forward has other rows too; the change of a logit is its
drift. Two tokens are a near-tie if their logits differ by at most `NEAR_TIE_DRIFTS` times the
drift, measured on this machine with this model (see `measure/drift.py`). In half precision the
drift is at least about a hundred times that of float32. Without drift there is no near-tie.
"""

NEAR_TIE_DRIFTS = 4
"""Largest gap of a near-tie, in drifts. Two logits can move in opposite directions, which gives 2;
a text other than the measured one may drift twice as far, which gives 4."""


def near_tie_of(drift: float) -> float:
    """Return the largest gap between two logits that rounding explains.

    `drift` is the largest measured change of a logit.
    """
    return NEAR_TIE_DRIFTS * drift


def is_near_tie(gap: float | None, near_tie: float) -> bool:
    """Return whether rounding explains that the replies have different tokens.

    `gap` is the difference of the two logits; None if one reply has ended, which rounding never
    explains. `near_tie` is the largest gap that rounding explains; at 0, without drift, rounding
    does not even explain a different choice between equal logits.
    """
    return gap is not None and 0 < near_tie >= gap


def verdict_on(gap: float | None, near_tie: float) -> str:
    """Return whether rounding explains a gap, as text."""
    name = "a near-tie" if is_near_tie(gap, near_tie) else "NOT A NEAR-TIE"
    if gap is None:
        return name
    if not near_tie:
        return f"{name}, as rounding changes nothing here"
    return f"{name}, as rounding explains up to {near_tie:.2g} here"
