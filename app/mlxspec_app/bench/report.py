"""The report of the measurements: rows of a table, and plain data."""

import platform
import sys
from collections.abc import Sequence
from dataclasses import asdict
from importlib.metadata import version
from statistics import fmean, quantiles

from mlxspec_app.bench.measure import Case

FLATTEST = 1.3
_WINDOW = 25  # updates on either side of a token of the reply

COST_HEADER = (
    f"{'text':<6}{'tokens':>7}{'a time':>7}{'above':>6}  {'panels':<7}"
    f"{'CPU ms per update, by quarter':^32}{'last/first':>10}{'at 500':>8}{'at 4000':>8}{'p99':>7}"
)
LATENESS_HEADER = f"{'frames beside two busy threads':<34}{'late ms, p50':>14}{'p99':>8}"


def summary(case: Case, figures: Sequence[float]) -> dict[str, object]:
    """Return a summary of the figures of a case."""
    percentiles = quantiles(figures, n=100)
    found: dict[str, object] = {**asdict(case), "p50": percentiles[49], "p99": percentiles[98]}
    if case.measures == "cost":
        quarters = _quarters(figures)
        found["quarters"] = quarters
        found["last_to_first"] = quarters[-1] / quarters[0]
        found |= {f"at_{token}": _around(case, figures, token) for token in (500, 4000)}
    return found


def cost_row(case: Case, figures: Sequence[float]) -> str:
    """Return the row of the table below `COST_HEADER`."""
    quarters = _quarters(figures)
    return (
        f"{case.text:<6}{case.tokens:>7}{case.per_update:>7}{case.above:>6}"
        f"  {'yes' if case.panels else 'no':<7}"
        + "".join(f"{quarter:>8.2f}" for quarter in quarters)
        + f"{quarters[-1] / quarters[0]:>10.2f}"
        + "".join(f"{_around(case, figures, token):>8.2f}" for token in (500, 4000))
        + f"{quantiles(figures, n=100)[98]:>7.1f}"
    )


def lateness_row(case: Case, figures: Sequence[float]) -> str:
    """Return the row of the table below `LATENESS_HEADER`."""
    percentiles = quantiles(figures, n=100)
    title = f"{case.above} messages above, {len(figures)} frames"
    return f"{title:<34}{percentiles[49]:>14.1f}{percentiles[98]:>8.1f}"


def machine() -> dict[str, str]:
    """Return the system, processor and versions on which the figures depend."""
    return {
        "system": platform.platform(),
        "processor": platform.processor() or platform.machine(),
        "python": sys.version.split()[0],
        "textual": version("textual"),
    }


def _quarters(figures: Sequence[float]) -> list[float]:
    size = len(figures) // 4
    return [fmean(figures[part * size : (part + 1) * size]) for part in range(4)]


def _around(case: Case, figures: Sequence[float], token: int) -> float:
    update = min(token // case.per_update, len(figures) - _WINDOW)
    return fmean(figures[max(0, update - _WINDOW) : update + _WINDOW])
