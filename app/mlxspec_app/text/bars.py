"""Bars, columns and sparklines of eighth blocks, from shares or values."""

from collections.abc import Sequence
from itertools import accumulate, pairwise
from statistics import fmean

_LEFT_EIGHTHS = " ▏▎▍▌▋▊▉█"
_LOWER_EIGHTHS = "▁▂▃▄▅▆▇█"


def bar(share: float, width: int) -> str:
    """Return a horizontal bar of `width` cells, filled from the left to an eighth of a cell."""
    eighths = round(min(1.0, max(0.0, share)) * width * 8)
    full, part = divmod(eighths, 8)
    return ("█" * full + (_LEFT_EIGHTHS[part] if part else "")).ljust(width)


def meter(share: float, width: int) -> str:
    """Return a bar with a visible empty part; a share above 0 fills at least one cell."""
    full = min(width, max(1, round(share * width))) if share > 0 else 0
    return "▓" * full + "░" * (width - full)


def block(share: float) -> str:
    """Return one cell filled from the left; a share above 0 is always visible."""
    if share <= 0:
        return " "
    return _LEFT_EIGHTHS[min(8, max(1, round(share * 8)))]


def spark(values: Sequence[float], width: int, top: float) -> str:
    """Return a sparkline of the values, at most `width` cells; `top` fills a cell.

    If there are more values than cells, each cell shows the mean of a group.
    """
    count = len(values)
    if count > width:
        edges = [count * cell // width for cell in range(width + 1)]
        values = [fmean(values[start:end]) for start, end in pairwise(edges)]
    scale = 7 / top if top > 0 else 0.0
    return "".join(_LOWER_EIGHTHS[min(7, max(0, round(value * scale)))] for value in values)


def columns(values: Sequence[float], num_rows: int, top: float) -> list[str]:
    """Return a chart of one column per value, the highest row first; `top` fills all rows.

    A value above 0 is always visible.
    """
    scale = 8 * num_rows / top if top > 0 else 0.0
    heights = [max(1, round(value * scale)) if value > 0 else 0 for value in values]
    filled = " " + _LOWER_EIGHTHS
    return [
        "".join(filled[min(8, max(0, height - 8 * below))] for height in heights)
        for below in reversed(range(num_rows))
    ]


def split_cells(shares: Sequence[float], width: int) -> list[int]:
    """Return the number of cells for each share; the numbers add up to `width`.

    Cells are cut at the rounded running total, so rounding errors do not add up. If all shares
    are 0, so are the numbers.
    """
    total = sum(shares)
    if total <= 0:
        return [0] * len(shares)
    edges = [round(width * running / total) for running in accumulate(shares, initial=0.0)]
    return [end - start for start, end in pairwise(edges)]
